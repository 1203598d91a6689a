"""The plan of a row: sharding, recomputation, offload, overlap."""

import re

from cost_model.plans import Offload, Plan, Recompute, Software
from cost_model.specs.cluster import Gpu
from cost_model.specs.model import ModelSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.degrees import Degrees
from tests.benchmarks.rows.raw import RawRow
from tests.benchmarks.rows.software import modern, software_of
from tests.benchmarks.rows.stages import recompute_of, stage_layers, vpp_of

_GPUS_OF_2021 = ("volta", "turing")
"""Generations whose runs are of 2021 and before, where a row does not say its year."""


def _zero_stage(  # noqa: PLR0911 - one line a spelling
    raw: RawRow, software: Software, alone: bool, ledger: Ledger
) -> int:
    """alone: whether there is neither tensor nor pipeline parallelism."""
    if raw.zero_stage == 3 and re.search(r"alpa|parax", raw.text("framework").lower()):
        ledger.assume("xla_gathers_once")
        return 2
    if raw.zero_stage is not None:
        return raw.zero_stage
    shards = re.search(r"WeightShard.*?\]=\[\[\d+, \d+, \d+, (\d), (\d), (\d)", raw.notes)
    if shards:
        weight, gradient, states = (int(flag) for flag in shards.groups())
        return 3 if weight else 2 if gradient else states
    notes = f"{raw.text('sharding')} {raw.notes}".lower()
    if "distributed optimizer" in notes or "overlap-param-gather" in notes:
        return 1
    printed = re.search(r"zero-?([0-3])", notes)
    if printed:
        return int(printed.group(1))
    ledger.assume("zero_of_software")
    if software is Software.FSDP:
        return 3
    nemo = re.search(r"nemo(-megatron)?", raw.text("framework").lower())
    if nemo and software is Software.MEGATRON and (alone or not nemo.group(1)):
        ledger.assume("nemo_distributed_adam")
        return 1
    if "deepspeed + hf" in raw.text("framework").lower():
        raise Skip("ZeRO stage not stated")
    return 0


def _offload(raw: RawRow) -> tuple[Offload, Offload]:
    """(optimizer, parameters)."""
    text = raw.text("offload").lower()
    if text in ("", "none", "0"):
        if re.search(r"full (cpu )?offload", raw.notes.lower()):
            return Offload.CPU, Offload.CPU
        return Offload.NONE, Offload.NONE
    if "activation" in text:
        raise Skip("activations offloaded")
    place = Offload.NVME if "nvme" in text else Offload.CPU
    optimizer = place if re.search(r"opt|^cpu$|^nvme$", text) else Offload.NONE
    params = place if "param" in text else Offload.NONE
    return optimizer, params


def _overlaps_tensor_parallel(raw: RawRow, software: Software, ledger: Ledger) -> bool:
    name = raw.text("framework").lower()
    published = re.search(r"megatron-core r|bridge|nemo 2[3-9]", name)
    if software is Software.MEGATRON and published and not raw.arguments:
        ledger.assume("published_runs_overlap_tensor_parallel")
        return True
    return "tp-comm-overlap" in raw.arguments


def _splits_hand_over(raw: RawRow, software: Software, gpu: Gpu, ledger: Ledger) -> bool:
    if software is Software.MEGATRON:
        return True
    old = software is Software.MEGATRON_DEEPSPEED and gpu.generation in _GPUS_OF_2021
    if old or "aa-scaling" in raw.text("framework").lower():
        ledger.assume("whole_hand_over")
        return False
    return True


def plan_of(
    raw: RawRow,
    degrees: Degrees,
    model: ModelSpec,
    nodes: int,
    gpu: Gpu,
    ledger: Ledger,
) -> Plan:
    """The plan of a row.

    degrees: from degrees_of. nodes: that the run used.
    """
    layers = model.layers
    if degrees.pp > layers:
        raise Skip("more pipeline stages than layers")
    software = software_of(raw, degrees.tp, degrees.pp, ledger)
    text = f"{raw.text('framework')} {raw.notes}".lower()
    compiled = bool(re.search(r"compile|jax|xla|maxtext|alpa|parax", text)) and "eager" not in text
    recompute, recompute_layers = recompute_of(raw, layers, degrees.pp, compiled, ledger)
    first, last = stage_layers(raw, model, degrees.pp, ledger)
    optimizer, params = _offload(raw)
    zero = _zero_stage(raw, software, degrees.tp == degrees.pp == 1, ledger)
    sequence_parallel = raw.flag("seq_parallel")
    if sequence_parallel is None:
        sequence_parallel = modern(raw) and degrees.tp > 1
    overlap = True
    # DeepSpeed overlaps at ZeRO 3 unless it is told not to (zero/config.py, overlap_comm_valid)
    if software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED) and zero < 3:
        overlap = bool(raw.arguments.get("overlap-grad-reduce")) or (
            not raw.arguments and modern(raw) and "gradients not overlapped" not in raw.notes
        )
        if not overlap:
            ledger.assume("no_overlap_before_2023")
    elif software is Software.DEEPSPEED and zero == 3 and gpu.generation in _GPUS_OF_2021:
        ledger.assume("zero3_of_2021_waits")
        overlap = False
    parked = (
        software is Software.MEGATRON_DEEPSPEED
        and zero == 3
        and recompute is Recompute.FULL
        and "pa_cpu=n" not in text
    )
    if parked:
        ledger.assume("checkpoints_on_host")
    chunked_loss = "torchtune" in text
    if chunked_loss:
        ledger.assume("chunked_cross_entropy")
    bucket = re.search(r"bucket=([\d.]+e\d+)", raw.notes)
    more: dict[str, object] = {"reduce_bucket": int(float(bucket.group(1)))} if bucket else {}
    return Plan(
        software=software,
        nodes=nodes,
        tp=degrees.tp,
        sequence_parallel=bool(sequence_parallel) and degrees.tp > 1,
        pp=degrees.pp,
        vpp=vpp_of(raw, layers, degrees.pp, ledger),
        first_stage_layers=first,
        last_stage_layers=last,
        dp=degrees.dp,
        cp=degrees.cp,
        ep=raw.integer("ep") or 1,
        zero_stage=zero,
        micro_batch=degrees.micro_batch,
        grad_accum=degrees.grad_accum,
        recompute=recompute,
        recompute_layers=recompute_layers,
        offload_optimizer=optimizer,
        offload_param=params,
        partition_activations=parked,
        cpu_checkpointing=parked,
        chunked_loss=chunked_loss,
        overlap_comm=overlap,
        split_hand_over=_splits_hand_over(raw, software, gpu, ledger),
        tp_overlap=_overlaps_tensor_parallel(raw, software, ledger),
        compile=compiled,
        **more,
    )
