"""The plan that a config means: what would run, on these ranks, if it is started as it stands."""

from dataclasses import dataclass, field
from typing import Any

from cost_model.plans import Offload, Plan, Recompute, Software
from cost_model.specs import ModelSpec, TrainingSpec
from cost_model.specs.training import Optimizer, Precision
from planner.check import edit
from planner.check.batch import model_parallel, ranks_checked
from planner.check.engine import BATCH_KEYS, complete_triple
from planner.check.engine.blocks import Refused
from planner.check.reader import Placeholder
from planner.check.situation import Situation
from planner.check.stages import stage_of

DEFAULT_SEQ_LEN = 4096
OPTIMIZERS: dict[str, Optimizer] = {
    "adam": "adamw",
    "adamw": "adamw",
    "adagrad": "adagrad",
    "lion": "lion",
    "muon": "muon",
    "sgd": "sgd",
    "adafactor": "adafactor",
}


@dataclass(frozen=True)
class Meaning:
    """A plan and its training run, with what had to be assumed."""

    plan: Plan
    training: TrainingSpec
    assumed: tuple[str, ...] = field(default=())


def meaning(document: dict[str, Any], situation: Situation, seq_len: int | None) -> Meaning | None:
    """What would run; None where the ranks or the stage cannot be told, or nothing would start."""
    world, stage, model = situation.world_size, stage_of(document), situation.model
    if world is None or stage is None or model is None:
        return None
    assumed: list[str] = []
    tp, pp, sp = _degrees(document, situation)
    if world % (tp * pp * sp):
        return None
    dp = world // (tp * pp * sp)
    batch = _batch(document, situation, world, assumed)
    if batch is None:
        return None
    micro, steps = batch
    length = seq_len
    if length is None:
        length = min(model.max_seq_len or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
        assumed.append(f"sequences of {length} tokens")
    precision = _precision(document, situation, assumed)
    optimizer = OPTIMIZERS.get(str(edit.get(document, ("optimizer", "type"), "adamw")).lower())
    per_node = situation.cluster.node.gpus_per_node if situation.cluster else world
    recompute = _recompute(situation)
    if recompute == Recompute.NONE:
        assumed.append("no activation checkpointing (--fact recompute=true says there is)")
    plan = Plan(
        software=_software(situation),
        nodes=max(1, -(-world // per_node)),
        tp=tp,
        pp=pp,
        dp=dp,
        sp=sp,
        zero_stage=stage,
        hpz=_hpz(document, stage),
        quantized_weights=stage == 3 and _on(document, "zero_quantized_weights"),
        quantized_gradients=stage == 3 and _on(document, "zero_quantized_gradients"),
        micro_batch=micro,
        grad_accum=steps,
        recompute=recompute,
        overlap_comm=_overlap(document, stage),
        **_offloads(document, stage),
        **_buckets(document, model, situation),
    )
    training = TrainingSpec(
        seq_len=length,
        global_batch=micro * steps * dp,
        precision=precision,
        optimizer=optimizer or "adamw",
        fp32_master=not edit.get(document, (precision, f"{precision}_master_weights_and_grads")),
    )
    return Meaning(plan, training, tuple(assumed))


def _recompute(situation: Situation) -> Recompute:
    """Full where the facts or TrainingArguments say so: no ds_config switches it on."""
    told = situation.facts.get("recompute")
    if told is None:
        told = (situation.trainer or {}).get("gradient_checkpointing")
    return Recompute.FULL if told and told != "none" else Recompute.NONE


def _software(situation: Situation) -> Software:
    if situation.mode == "pipeline":
        return Software.DEEPSPEED_PIPELINE
    if situation.mode == "megatron_deepspeed":
        return Software.MEGATRON_DEEPSPEED
    return Software.DEEPSPEED


def _degrees(document: dict[str, Any], situation: Situation) -> tuple[int, int, int]:
    shared = model_parallel(document, situation)
    pp = situation.degree("pp") if situation.mode in ("pipeline", "megatron_deepspeed") else 1
    told = document.get("sequence_parallel_size", 1)
    sp = told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else 1
    return shared // pp, pp, max(sp, situation.degree("sp"))


def _batch(
    document: dict[str, Any], situation: Situation, world: int, assumed: list[str]
) -> tuple[int, int] | None:
    concrete = {
        k: v for k in BATCH_KEYS if not isinstance(v := document.get(k), str) and v is not None
    }
    if not any(k in concrete for k in BATCH_KEYS[:2]):
        concrete["train_micro_batch_size_per_gpu"] = 1
        assumed.append("a micro-batch of 1")
    if isinstance(document.get("train_micro_batch_size_per_gpu"), str):
        assumed.append("a micro-batch as the rest allows") if BATCH_KEYS[0] in concrete else None
    try:
        triple = complete_triple(concrete, ranks_checked(document, situation, world))
    except Refused:
        return None
    micro, steps = int(triple.micro), int(triple.accumulation)
    return (max(1, micro), max(1, steps))


def _precision(document: dict[str, Any], situation: Situation, assumed: list[str]) -> Precision:
    for name in ("bf16", "fp16"):
        value = edit.get(document, (name, "enabled"))
        if value is True:
            return name
    if "auto" in (edit.get(document, (n, "enabled")) for n in ("bf16", "fp16")):
        has = situation.cluster is None or situation.cluster.node.gpu.bf16_tflops is not None
        assumed.append("bf16" if has else "fp16")
        return "bf16" if has else "fp16"
    return "fp32"


def _zero(document: dict[str, Any], *names: str) -> Any:
    for name in names:
        value = edit.get(document, ("zero_optimization", name))
        if value is not None and not isinstance(value, Placeholder):
            return value
    return None


def _on(document: dict[str, Any], name: str) -> bool:
    return _zero(document, name) is True


def _hpz(document: dict[str, Any], stage: int) -> int:
    value = _zero(document, "zero_hpz_partition_size")
    return value if stage == 3 and isinstance(value, int) and value > 1 else 1


def _overlap(document: dict[str, Any], stage: int) -> bool:
    value = _zero(document, "overlap_comm")
    return value if isinstance(value, bool) else stage == 3


def _offloads(document: dict[str, Any], stage: int) -> dict[str, Any]:
    names = {"cpu": Offload.CPU, "nvme": Offload.NVME}

    def device(block: str) -> Offload:
        told = edit.get(document, ("zero_optimization", block, "device"))
        return names.get(told, Offload.NONE) if isinstance(told, str) else Offload.NONE

    optimizer = device("offload_optimizer") if stage >= 1 else Offload.NONE
    if stage < 3 and optimizer == Offload.NVME:
        optimizer = Offload.CPU
    ratio = edit.get(document, ("zero_optimization", "offload_optimizer", "ratio"), 1.0)
    return {
        "offload_optimizer": optimizer,
        "offload_param": device("offload_param") if stage == 3 else Offload.NONE,
        "offload_ratio": ratio if isinstance(ratio, int | float) and 0 <= ratio <= 1 else 1.0,
    }


def _buckets(document: dict[str, Any], model: ModelSpec, situation: Situation) -> dict[str, int]:
    square = model.hidden * model.hidden
    trainer = situation.mode in ("hf_trainer", "accelerate")
    out: dict[str, int] = {}
    for column, names, default, auto in (
        ("reduce_bucket", ("reduce_bucket_size",), 500_000_000, square),
        ("allgather_bucket", ("allgather_bucket_size",), 500_000_000, 500_000_000),
        (
            "prefetch_bucket",
            ("stage3_prefetch_bucket_size", "prefetch_bucket_size"),
            50_000_000,
            int(0.9 * square),
        ),
        (
            "max_live_params",
            ("stage3_max_live_parameters", "max_live_parameters"),
            1_000_000_000,
            1_000_000_000,
        ),
        (
            "persistence_threshold",
            ("stage3_param_persistence_threshold", "param_persistence_threshold"),
            100_000,
            10 * model.hidden,
        ),
    ):
        value = _zero(document, *names)
        if value == "auto":
            out[column] = auto if trainer else default
        elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 1:
            out[column] = int(min(value, 1e15))
        else:
            out[column] = default
    return out
