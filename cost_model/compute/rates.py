"""What one GPU can do in the training precision, coefficients applied."""

from dataclasses import dataclass

from cost_model.calibration import Coefficients, GpuCoefficients
from cost_model.specs.cluster import Gpu
from cost_model.specs.training import TrainingSpec


@dataclass(frozen=True)
class Rates:
    """Rates of one GPU, in SI units."""

    peak_flops: float
    """FLOP/s of the data sheet in the training precision."""
    gemm_flops: float
    """FLOP/s of a large matrix product."""
    bytes_per_s: float
    """Of a streaming kernel."""
    sms: int
    element_bytes: int
    """Of an activation in the training precision."""
    gpu: GpuCoefficients
    flash2: bool
    """Whether FlashAttention-2 runs on the GPU (Ampere and later)."""

    @classmethod
    def of(cls, gpu: Gpu, training: TrainingSpec, coefficients: Coefficients) -> "Rates":
        """The rates of a GPU under its fitted coefficients."""
        own = coefficients.gpu(gpu)
        peak = gpu.peak_flops(training.precision)
        return cls(
            peak_flops=peak,
            gemm_flops=peak * own.gemm_efficiency,
            bytes_per_s=gpu.memory_bandwidth_gb_per_s * 1e9 * own.memory_efficiency,
            sms=gpu.sms,
            element_bytes=4 if training.precision == "fp32" else 2,
            gpu=own,
            flash2=gpu.generation not in ("volta", "turing"),
        )

    def stream_seconds(self, n_bytes: float) -> float:
        """Seconds to move bytes through memory, without any launch."""
        return n_bytes / self.bytes_per_s
