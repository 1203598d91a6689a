"""Host RAM and NVMe of one node."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.memory.precision import element_bytes
from cost_model.memory.states import optimizer_bytes
from cost_model.memory.sub_groups import SUB_GROUP
from cost_model.plans import Bools, Floats, Ints, PlanTable, Software, any_of
from cost_model.specs import ModelSpec, TrainingSpec

OPTIMIZER_BUFFERS = 4
WEIGHT_BUFFERS = 5
"""Pinned swap buffers of NVMe offload (buffer_count of the exported config)."""


LOADED_BYTES = 8.0
"""An fp32 model and the fp32 weights it is filled from, of a load that is not sharded."""

SHARD_BYTES = 10e9
"""A file of a sharded checkpoint: save_pretrained's max_shard_size until transformers 4.35; later
ones are smaller. A base that is quantised as it is loaded passes through the host file by file, to
the rank's own GPU (from_pretrained sets device_map so for a bitsandbytes config)."""


_MANTISSA = (1 << 52) - 1
"""Bits of a double below its exponent."""


def pinned_bytes(n_bytes: Floats) -> Floats:
    """What the host takes to pin one tensor of n bytes: torch rounds up to a power of two."""
    bits = np.ascontiguousarray(n_bytes, np.float64).view(np.int64)
    return ((bits + _MANTISSA) & ~_MANTISSA).view(np.float64)  # clears what is beyond the exponent


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
    moments = 4.0 if training.optimizer == "adafactor" else optimizer_bytes(training)
    host, nvme = np.zeros((2, len(away.three)))
    on_flash = away.three & away.optimizer_on_flash
    flash = np.flatnonzero(on_flash)
    three = np.flatnonzero(away.three & ~on_flash)
    whole = np.flatnonzero(~away.three)
    for elements in away.optimizer:
        if not elements.any():
            continue
        host += pinned_bytes(element * elements)
        few = elements.take(flash)
        host[flash] += OPTIMIZER_BUFFERS * wide * np.minimum(few, SUB_GROUP)
        nvme[flash] += (2 * wide + moments) * few
        few = elements.take(three)
        host[three] += (moments + wide) * few + _by_sub_group(few, wide)
        few = elements.take(whole)
        host[whole] += moments * few + 2 * pinned_bytes(wide * few)
    host[whole] += pinned_bytes(element * np.broadcast_to(away.matrix, host.shape).take(whole))
    for elements in away.weights:
        if elements.any():
            held = pinned_bytes(element * elements)
            flash = np.flatnonzero(away.weights_on_flash & away.three)
            part = element * (away.matrix / away.ranks).take(flash)
            nvme[flash] += element * elements.take(flash)
            held[flash] = np.minimum(WEIGHT_BUFFERS * part, element * elements.take(flash))
            host += held
    return host, nvme


def _by_sub_group(elements: Floats, wide: float) -> Floats:
    """Pinned fp32 gradients of sub-groups, each one tensor [rows]."""
    groups = np.floor(elements / SUB_GROUP)
    full = float(pinned_bytes(np.array([wide * SUB_GROUP]))[0])
    return groups * full + pinned_bytes(wide * (elements - groups * SUB_GROUP))


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
    whole, a model is made in fp32, and filled from weights in fp32 (from_pretrained's default). A
    4-bit base is loaded file by file, and adapters alone are saved.
    """
    host = coefficients.host
    whole = float(element_bytes(training) * model.params)
    # a Hugging Face model is built whole by every rank, also where AutoTP shards it afterwards;
    # FSDP beside tensor or pipeline parallelism shards what is on the meta device (torchtitan)
    built_whole = any_of(table.software, Software.DEEPSPEED, Software.FSDP)
    built_whole &= (table.software != int(Software.FSDP)) | (table.pp * table.tp == 1)
    own: Floats = whole / ((table.pp * table.tp - 1) * ~built_whole + 1)
    base = GIB * (host.process_gib * ranks_per_node + host.reserve_gib)
    steady = ranks_per_node * (offloaded + checkpoints)
    if training.lora is not None and training.lora.quantized_base:
        by_file: Floats = base + steady + ranks_per_node * min(whole, SHARD_BYTES)
        return by_file
    three = table.zero_stage == 3
    load = ranks_per_node * own
    np.copyto(load, whole, where=three)
    if training.whole_at_load:
        load = ranks_per_node * LOADED_BYTES * model.params
    np.copyto(own, whole, where=three)  # what the rank that saves gathers
    most: Floats = np.maximum(load, steady + own)
    return base + most
