"""Host RAM and NVMe of one node."""

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.memory.precision import element_bytes
from cost_model.plans import Floats, PlanTable, Software
from cost_model.specs import ModelSpec, TrainingSpec


def pinned_bytes(n_bytes: Floats) -> Floats:
    """What the host takes to pin n bytes: torch's pinned allocator rounds up to a power of two."""
    if not n_bytes.any():
        return n_bytes
    return np.where(n_bytes > 0, 2.0 ** np.ceil(np.log2(np.maximum(n_bytes, 1.0))), 0.0)


def host_bytes(
    coefficients: MemoryCoefficients,
    model: ModelSpec,
    training: TrainingSpec,
    table: PlanTable,
    offloaded: Floats,
    checkpoints: Floats,
    ranks_per_node: Floats,
) -> Floats:
    """Peak of load, steady state and save on one node [plans].

    offloaded: pinned state bytes of one rank; checkpoints: activations of one rank on the host.
    At load every rank holds the whole model in the training precision, unless ZeRO-3 initialises
    it sharded or the software builds its own part; at save one rank of the node holds that.
    """
    host = coefficients.host
    whole = float(element_bytes(training) * model.params)
    # a Hugging Face model is built whole by every rank, also where AutoTP shards it afterwards
    built_whole = (table.software == Software.DEEPSPEED) | (table.software == Software.FSDP)
    own = whole / np.where(built_whole, 1, table.pp * table.tp)
    base = GIB * (host.process_gib * ranks_per_node + host.reserve_gib)
    steady = ranks_per_node * (pinned_bytes(offloaded) + checkpoints)
    load = np.where(table.zero_stage == 3, whole, ranks_per_node * own)
    save = np.where(table.zero_stage == 3, whole, own)
    return base + np.maximum(load, steady + save)
