"""Time of the optimizer step on the GPU: bound by memory."""

from cost_model.plans import Floats
from cost_model.specs.training import Optimizer, TrainingSpec

_STATE_BYTES: dict[Optimizer, float] = {
    # bytes of optimizer state read and written per parameter, beside master and gradient
    "adamw": 16.0,
    "adam8bit": 4.0,
    "paged_adam8bit": 4.0,
    "lion": 8.0,
    "sgd": 8.0,
    "adafactor": 2.0,
    "adagrad": 8.0,
    "muon": 8.0,
}
_MUON_FLOPS_PER_PARAM = 6 * 5 * 1000.0
"""Five Newton-Schulz steps of three products each on matrices of about a thousand rows."""


def update_bytes(training: TrainingSpec) -> float:
    """Bytes moved per updated parameter.

    Master read and written (8), gradient read (4), 16-bit weights written (2), optimizer state;
    before that the gradient is unscaled, its norm taken, clipped: 4 passes at 4 bytes
    (mixed-precision training, arXiv 1710.03740).
    """
    return 8.0 + 4.0 + 2.0 + 16.0 + _STATE_BYTES[training.optimizer]


def update_seconds(
    params: Floats, training: TrainingSpec, bytes_per_s: float, gemm_flops: float
) -> Floats:
    """Time to update `params` parameters on one rank [plans]."""
    seconds = params * (update_bytes(training) / bytes_per_s)
    if training.optimizer == "muon":
        seconds = seconds + params * (_MUON_FLOPS_PER_PARAM / gemm_flops)
    return seconds
