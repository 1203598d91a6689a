"""What one GPU can do in the training precision, coefficients applied."""

from dataclasses import dataclass

from cost_model.calibration import Coefficients, GpuCoefficients
from cost_model.specs.cluster import Gpu
from cost_model.specs.training import TrainingSpec

_FP8_EFFICIENCY = 0.9
"""What fp8 products reach of their peak, over what 16-bit ones reach of theirs: 71 against 79 %
on H100, 76 against 78 % on B200 (Bekman, "ML Engineering", maximum achievable matmul FLOPS)."""


@dataclass(frozen=True)
class Rates:
    """Rates of one GPU, in SI units."""

    peak_flops: float
    """FLOP/s of the data sheet in the training precision."""
    gemm_flops: float
    """FLOP/s of a large matrix product in the training precision."""
    linear_flops: float
    """The same of a linear layer, which may multiply in TF32 or fp8."""
    headroom: float
    """Rate of the matrix units at the clock of a GPU that is not held down by its power, over the
    sustained one."""
    cast_bytes: float
    """Bytes moved per operand element to cast it to fp8, once; 0 where none is cast."""
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
        # TF32 is a switch of the whole framework; fp8 is a property of the linear layers
        tf32 = training.matmul_precision == "tf32" and gpu.tf32_tflops is not None
        peak = gpu.peak_flops("tf32" if tf32 else training.precision)
        linear = gpu.peak_flops(training.matmul_precision or training.precision)
        fp32 = training.precision == "fp32" and not tf32
        fp8 = training.matmul_precision == "fp8" and gpu.fp8_tflops is not None
        return cls(
            peak_flops=peak,
            gemm_flops=peak * (own.fp32_efficiency if fp32 else own.gemm_efficiency),
            linear_flops=linear
            * (own.fp32_efficiency if fp32 and linear == peak else own.gemm_efficiency)
            * (_FP8_EFFICIENCY if fp8 else 1.0),
            headroom=1.0 if fp32 else max(own.gemm_issue_efficiency / own.gemm_efficiency, 1.0),
            cast_bytes=2.0 if fp8 else 0.0,
            bytes_per_s=gpu.memory_bandwidth_gb_per_s * 1e9 * own.memory_efficiency,
            sms=gpu.sms,
            element_bytes=4 if training.precision == "fp32" else 2,
            gpu=own,
            flash2=gpu.generation not in ("volta", "turing"),
        )

    def stream_seconds(self, n_bytes: float) -> float:
        """Seconds to move bytes through memory, without any launch."""
        return n_bytes / self.bytes_per_s
