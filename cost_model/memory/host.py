"""Host RAM and NVMe of one node."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.memory.buffers import SUB_GROUP
from cost_model.memory.precision import element_bytes
from cost_model.memory.states import optimizer_bytes
from cost_model.plans import Bools, Floats, Ints, PlanTable, Software
from cost_model.specs import ModelSpec, TrainingSpec

OPTIMIZER_BUFFERS = 4
WEIGHT_BUFFERS = 5
"""Pinned swap buffers of NVMe offload (buffer_count of the exported config)."""


LOADED_BYTES = 8.0
"""An fp32 model and the fp32 weights it is filled from, of a load that is not sharded."""


def pinned_bytes(n_bytes: Floats) -> Floats:
    """What the host takes to pin one tensor of n bytes: torch rounds up to a power of two."""
    fraction, exponent = np.frexp(n_bytes)
    exact = (fraction == 0.5) | (n_bytes == 0)
    return np.where(exact, n_bytes, np.ldexp(1.0, exponent))


@dataclass(frozen=True)
class Away:
    """What one rank has offloaded [rows]: elements, unless said."""

    three: Bools
    """ZeRO 3."""
    optimizer_on_flash: Bools
    weights_on_flash: Bools
    ranks: Ints
    """Over which ZeRO shards."""
    optimizer: tuple[Floats, Floats]
    """Dense and expert parameters whose optimizer is on the host or on NVMe."""
    weights: tuple[Floats, Floats]
    """The same of 16-bit weights."""
    matrix: Floats
    """The largest single parameter, whole."""


def offloaded_bytes(training: TrainingSpec, away: Away) -> tuple[Floats, Floats]:
    """Bytes of one rank on the host and on NVMe [rows].

    ZeRO 1 and 2 pin the fp32 master, a 16-bit copy and the fp32 gradient of the whole partition,
    each one tensor, and a 16-bit gradient of the largest parameter (stage_1_and_2.py); ZeRO 3 pins
    fp32 gradients by sub-group and the 16-bit gradient of all (stage3.py). Moments, and ZeRO 3's
    master, are pageable. 18 bytes a parameter before rounding; the engine on fake tensors has as
    many. On NVMe the states leave a few swap buffers of one sub-group each. Offloaded 16-bit
    weights are one pinned tensor, on NVMe a few buffers of the largest part.
    """
    element = float(element_bytes(training))
    wide = 4.0 if training.fp32_master or element == 4 else element
    moments = optimizer_bytes(training)
    three, flash = away.three, away.three & away.optimizer_on_flash
    host, nvme = np.zeros((2, len(three)))
    for elements in away.optimizer:
        if not elements.any():
            continue
        host += np.where(
            flash,
            _swapped(elements, wide) + pinned_bytes(element * elements),
            moments * elements + _pinned_states(elements, three, wide, element),
        )
        nvme += np.where(flash, (2 * wide + moments) * elements, 0.0)
    host += np.where(three, 0.0, pinned_bytes(element * away.matrix))
    flash = away.weights_on_flash
    for elements in away.weights:
        if elements.any():
            bytes_ = element * elements
            part = element * away.matrix / away.ranks
            buffers = np.minimum(WEIGHT_BUFFERS * part, bytes_)
            host += np.where(flash, buffers, pinned_bytes(bytes_))
            nvme += np.where(flash, bytes_, 0.0)
    return host, nvme


def _pinned_states(elements: Floats, three: Bools, wide: float, element: float) -> Floats:
    """Master, 16-bit copy and gradients of offloaded elements [rows]."""
    copy = pinned_bytes(element * elements)
    whole = pinned_bytes(wide * elements)
    groups = np.floor(elements / SUB_GROUP)
    rest = pinned_bytes(wide * (elements - groups * SUB_GROUP))
    full = pinned_bytes(np.full(1, wide * SUB_GROUP))
    by_group = wide * elements + groups * full + rest
    return copy + np.where(three, by_group, 2 * whole)


def _swapped(elements: Floats, wide: float) -> Floats:
    """Swap buffers of the optimizer's states, each of a sub-group [rows]."""
    return OPTIMIZER_BUFFERS * wide * np.minimum(elements, SUB_GROUP)


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

    offloaded: state bytes of one rank; checkpoints: activations of one rank on the host.
    At load every rank holds the whole model in the training precision, unless ZeRO-3 initialises
    it sharded or the software builds its own part; at save one rank of the node holds that. Loaded
    whole, a model is made in fp32, and filled from weights in fp32 (from_pretrained's default).
    """
    host = coefficients.host
    whole = float(element_bytes(training) * model.params)
    # a Hugging Face model is built whole by every rank, also where AutoTP shards it afterwards
    built_whole = (table.software == Software.DEEPSPEED) | (table.software == Software.FSDP)
    own = whole / np.where(built_whole, 1, table.pp * table.tp)
    base = GIB * (host.process_gib * ranks_per_node + host.reserve_gib)
    steady = ranks_per_node * (offloaded + checkpoints)
    load = np.where(table.zero_stage == 3, whole, ranks_per_node * own)
    quantized = training.lora is not None and training.lora.quantized_base
    if training.whole_at_load and not quantized:
        load = ranks_per_node * LOADED_BYTES * model.params
    save = np.where(table.zero_stage == 3, whole, own)
    return base + np.maximum(load, steady + save)
