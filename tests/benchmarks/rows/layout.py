"""The plan of a row: degrees, batch, sharding, recomputation, offload."""

import re
from dataclasses import dataclass
from itertools import pairwise

from cost_model.plans import Offload, Plan, Recompute, Software
from cost_model.specs.cluster import Gpu
from cost_model.specs.model import ModelSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.raw import RawRow
from tests.benchmarks.rows.software import modern, software_of


@dataclass(frozen=True)
class Degrees:
    """How the ranks of a run are laid out, and its batch."""

    gpus: int
    tp: int
    pp: int
    cp: int
    dp: int
    micro_batch: int
    grad_accum: int
    global_batch: int
    """As the source states it; micro_batch x grad_accum x dp unless batches are uneven."""


def _gpus(raw: RawRow, ledger: Ledger) -> int:
    gpus = raw.integer("num_gpus")
    if gpus and "litgpt" in raw.text("framework").lower() and raw.integer("dp") is None:
        ledger.assume("litgpt_one_device")
        return 1
    if gpus is None:
        nodes, per_node = raw.integer("nodes"), raw.integer("gpus_per_node")
        if nodes and per_node:
            gpus = nodes * per_node
    if gpus is None:
        tp, pp, dp, cp = (raw.integer(k) for k in ("tp", "pp", "dp", "cp"))
        gpus = tp * pp * dp * (cp or 1) if tp and pp and dp else None
    if gpus is None:
        raise Skip("number of GPUs not stated")
    return gpus


def _model_parallel(raw: RawRow, gpus: int, ledger: Ledger) -> tuple[int, int]:
    tp, pp, dp = raw.integer("tp"), raw.integer("pp"), raw.integer("dp")
    cp = raw.integer("cp") or 1
    if tp and pp:
        return tp, pp
    fully_sharded = raw.integer("zero_stage") == 3 or "fsdp" in raw.text("sharding").lower()
    litgpt = "litgpt" in raw.text("framework").lower()
    if gpus in (1, dp) or fully_sharded or litgpt:
        ledger.assume("no_tensor_parallelism")
        return tp or 1, pp or 1
    if dp and (tp or pp):
        rest = gpus // (dp * cp * (tp or pp or 1))
        return (tp or rest), (pp or rest)
    raise Skip("layout not stated")


def _micro_batch(raw: RawRow, dp: int, pp: int, ledger: Ledger) -> int:
    micro = raw.integer("micro_batch")
    if micro:
        return micro
    batch, accum = raw.integer("global_batch"), raw.integer("grad_accum")
    if batch and accum and batch % (dp * accum) == 0:
        return batch // (dp * accum)
    if batch and batch % dp == 0:
        if pp > 1:
            ledger.assume("micro_batch_1_in_pipeline")
            return 1
        if batch // dp <= 4:
            ledger.assume("micro_batch_fills_rank")
            return batch // dp
    raise Skip("micro-batch not stated")


def degrees_of(raw: RawRow, ledger: Ledger) -> Degrees:
    """Degrees and batch of a row; Skip where they cannot be known or do not add up."""
    if "TP not printed" in raw.notes:
        raise Skip("layout not stated")
    if re.search(r"per-op", raw.text("recompute")) or "per-op" in raw.notes:
        raise Skip("plan differs by operator")
    gpus = _gpus(raw, ledger)
    tp, pp = _model_parallel(raw, gpus, ledger)
    cp = raw.integer("cp") or 1
    dp = raw.integer("dp")
    if dp is None:
        ledger.assume("dp_fills_the_job")
        dp = max(1, gpus // (tp * pp * cp))
    if tp * pp * cp * dp != gpus:
        if gpus % (tp * pp * cp) or tp * pp * dp == gpus:
            raise Skip("degrees do not multiply to the number of GPUs")
        dp = gpus // (tp * pp * cp)
    micro = _micro_batch(raw, dp, pp, ledger)
    batch, accum = raw.integer("global_batch"), raw.integer("grad_accum")
    if batch is None:
        rule = "batch_from_micro_batches" if accum else "one_micro_batch"
        if not accum and "litgpt" in raw.text("framework").lower():
            rule, accum = "litgpt_accumulates", max(2, 8 // micro)
        ledger.assume(rule)
        accum = accum or 1
        batch = micro * accum * dp
    elif accum is None or micro * accum * dp != batch:
        if batch % (micro * dp):
            ledger.assume("uneven_micro_batches")
            micro = min(micro, max(1, -(-batch // dp)))
        else:
            ledger.assume("accumulation_fills_the_batch")
        accum = -(-batch // (micro * dp))
    return Degrees(gpus, tp, pp, cp, dp, micro, accum, batch)


def _recompute(  # noqa: PLR0911, PLR0912 - one line a spelling
    raw: RawRow, layers: int, pp: int, compiled: bool, ledger: Ledger
) -> tuple[Recompute, int]:
    """(what is recomputed, in how many layers of a stage; -1 is all)."""
    text = raw.text("recompute").lower()
    per_stage = max(1, layers // pp)
    mfu, hfu = raw.number("mfu"), raw.number("hfu")
    if text in ("none", "") and mfu and hfu and hfu / mfu > 1.3:
        ledger.assume("recomputed_by_hfu")
        return Recompute.FULL, -1
    if text in ("none", "disabled", "0"):
        return Recompute.NONE, -1
    if text in ("full", "1"):
        return Recompute.FULL, -1
    if re.fullmatch(r"selective(\(core_attn\))?", text):
        return Recompute.SELECTIVE, -1
    if "sac taken as" in raw.notes.lower() and text.startswith("every"):
        ledger.assume("torchtrain_selective_is_by_operator")
        text = "selective_op"
    every = re.match(r"every_(\d+)_layers", text)
    if every:
        return Recompute.FULL, max(1, per_stage // int(every.group(1)))
    if text == "selective_op":
        ledger.assume("op_checkpointing_as_layers")
        return Recompute.FULL, round((0.58 if compiled else 0.67) * per_stage)
    stages = re.search(r"checkpointed layers per stage=\[([\d, ]+)\]", raw.notes)
    if text == "partial" and stages:
        counts = [int(n) for n in stages.group(1).split(",")]
        if len(set(counts)) > 1:
            raise Skip("stages recompute differently")
        return Recompute.FULL, counts[0]
    if text:
        raise Skip("recomputes parts of a layer that are not modelled")
    framework = raw.text("framework").lower()
    if "torchtune" in framework:
        ledger.assume("torchtune_recipes")
        return Recompute.FULL, -1
    if re.search(r"gpipe|torch pipe", framework):
        ledger.assume("gpipe_recomputes")
        return Recompute.FULL, -1
    if "deepspeed 3d megatron" in framework:
        ledger.assume("megatron_examples_recompute")
        return Recompute.FULL, -1
    ledger.assume("recompute_not_stated")
    return Recompute.NONE, -1


def _zero_stage(  # noqa: PLR0911 - one line a spelling
    raw: RawRow, software: Software, alone: bool, ledger: Ledger
) -> int:
    """alone: whether there is neither tensor nor pipeline parallelism."""
    stage = raw.number("zero_stage")
    if stage is not None:
        return int(stage)
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


def _stage_layers(raw: RawRow, model: ModelSpec, pp: int, ledger: Ledger) -> tuple[int, int]:
    """(layers of the first stage, of the last); 0 divides evenly."""
    layers = model.layers
    if "aa-scaling" in raw.text("framework").lower() and pp > 1:
        ledger.assume("stages_of_equal_parameters")
        layer = model.kinds[0].params
        ends = (model.embedding_params / layer, model.head_params / layer)
        sizes = balanced_stages(layers, pp, *ends)
        if len(sizes) == pp and len(set(sizes[1:-1])) < 2:
            return sizes[0], sizes[-1]
    args = raw.arguments
    first = int(args.get("decoder-first-pipeline-num-layers", 0))
    last = int(args.get("decoder-last-pipeline-num-layers", 0))
    if args.get("account-for-embedding-in-pipeline-split") and (layers + 2) % pp == 0 and pp > 1:
        return (layers + 2) // pp - 1, (layers + 2) // pp - 1
    blocks = re.search(r"layer blocks per stage .*?=\[([\d, ]+)\]", raw.notes)
    if blocks and pp > 1:
        sizes = [int(n) for n in blocks.group(1).split(",")]
        if len(sizes) == pp and sum(sizes) == layers + 2:
            return sizes[0] - 1, sizes[-1] - 1
    bounds = re.search(r"partition boundaries \[([\d, ]+)\]", raw.notes)
    if bounds and pp > 1:
        cuts = [int(n) for n in bounds.group(1).split(",")]
        # The model's list has three entries before the layers (cast, embedding, transpose) and
        # three after them (transpose, norm, head): Megatron-DeepSpeed, GPTModelPipe.
        if cuts[-1] == layers + 6 and len(cuts) == pp + 1:
            sizes = [max(0, min(b, layers + 3) - max(a, 3)) for a, b in pairwise(cuts)]
            if max(sizes[1:-1], default=0) - min(sizes[1:-1], default=0) > 1:
                raise Skip("stages of unequal layers")
            return sizes[0], sizes[-1]
    return first, last


def balanced_stages(layers: int, pp: int, embedding: float, head: float) -> list[int]:
    """Layers of each stage where the largest stage holds as few parameters as can be.

    embedding, head: parameters of the ends in units of a layer. Stages are filled from the first
    one on up to the largest stage's load (DeepSpeed, runtime/utils.py, partition_balanced).
    """
    items = [embedding, *([1.0] * layers), head]
    loads = {sum(items[a:b]) for a in range(len(items)) for b in range(a + 1, len(items) + 1)}
    for most in sorted(loads):
        stages, load = [0], 0.0
        for place, item in enumerate(items):
            if load + item > most + 1e-9:
                stages.append(0)
                load = 0.0
            load += item
            stages[-1] += 0 < place <= layers
        if len(stages) <= pp and most >= max(items):
            return stages
    return []


def _vpp(raw: RawRow, layers: int, pp: int, ledger: Ledger) -> int:
    vpp = raw.integer("vpp")
    if vpp:
        return vpp if pp > 1 else 1
    if pp > 1 and re.search(r"megatron-core r|nemo 2[4-9]", raw.text("framework").lower()):
        ledger.assume("interleave_fully")
        return layers // pp
    return 1


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
    old = software is Software.MEGATRON_DEEPSPEED and gpu.generation in ("volta", "turing")
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
    software = software_of(raw, degrees.tp, degrees.pp, ledger)
    text = f"{raw.text('framework')} {raw.notes}".lower()
    compiled = bool(re.search(r"compile|jax|xla|maxtext|alpa|parax", text)) and "eager" not in text
    recompute, recompute_layers = _recompute(raw, layers, degrees.pp, compiled, ledger)
    first, last = _stage_layers(raw, model, degrees.pp, ledger)
    optimizer, params = _offload(raw)
    zero = _zero_stage(raw, software, degrees.tp == degrees.pp == 1, ledger)
    sequence_parallel = raw.flag("seq_parallel")
    if sequence_parallel is None:
        sequence_parallel = modern(raw) and degrees.tp > 1
    overlap = True
    if software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED):
        overlap = bool(raw.arguments.get("overlap-grad-reduce")) or (
            not raw.arguments and modern(raw) and "gradients not overlapped" not in raw.notes
        )
        if not overlap:
            ledger.assume("no_overlap_before_2023")
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
        vpp=_vpp(raw, layers, degrees.pp, ledger),
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
        partition_activations=parked and degrees.tp > 1,
        cpu_checkpointing=parked,
        chunked_loss=chunked_loss,
        overlap_comm=overlap,
        split_hand_over=_splits_hand_over(raw, software, gpu, ledger),
        tp_overlap=_overlaps_tensor_parallel(raw, software, ledger),
        compile=compiled,
        **more,
    )
