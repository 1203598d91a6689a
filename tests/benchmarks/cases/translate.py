"""From a case's free-form fields to a model, a cluster, a training and a plan.

What a case leaves open is what its software does by default: LLaMA-Factory, torchtune and their
like checkpoint every layer, plain Hugging Face and DeepSpeed do not; today's Megatron recipes shard
the optimizer, and Megatron reduces gradients after the backward pass unless it is asked to overlap.
Micro-batch 1 and ample host RAM where nothing is said.
"""

import re
from dataclasses import dataclass, replace

from cost_model.plans import Offload, Plan, Recompute, Software
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.geometry import explicit
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import AttentionKernel, Lora, TrainingSpec
from tests.benchmarks.cases.clusters import cluster_for
from tests.benchmarks.cases.fields import Fields, first_number, numbers, text, truth, whole
from tests.benchmarks.cases.models import model_of

LONG = 65_536
"""Tokens from which no run keeps every activation."""

LARGE = 30e9
"""Parameters from which the same holds without a pipeline."""

_CHECKPOINTS_BY_DEFAULT = r"hiyouga|llama-?factory|qwen|torchtune|axolotl|mosaicml|llm-foundry|neox"
"""Projects whose training recipes turn activation checkpointing on."""

_BEFORE_SDPA = r"llama-?(7|13|30|33|65)b|llama-?2|\bmpt|neox|\bopt|gpt-?[2j]|bert|t5|bloom|pythia"
"""Models of before 2024: transformers had only eager attention for them."""


@dataclass(frozen=True)
class Question:
    """One thing to ask of the cost model."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    plan: Plan

    def on(self, **changes: object) -> "Question":
        """The same with fields of the plan changed."""
        return replace(self, plan=Plan(**(self.plan.model_dump() | changes)))


def _billions(case: Fields) -> float | None:
    geometry: Fields = case.get("geometry") or {}
    return first_number(geometry, "params_b")


def _loads_whole(case: Fields, config: Fields, lora: Lora | None, sharded: bool) -> bool:
    """Whether every rank loads the whole model: it says so; or a 4-bit base, which Hugging Face's
    loading quantises on each GPU before FSDP or ZeRO-3 shard anything."""
    symptom = text(case, "symptom")
    observed: Fields = case.get("observed") or {}
    started, billions = first_number(observed, "mem_gb_after_init"), _billions(case)
    if started and billions and started >= 2 * billions:  # 16-bit weights of the whole model
        return True
    stated = text(config, "zero_init").startswith(("not", "false")) or re.search(
        r"every rank loads|still allocates full model|oom at load", symptom
    )
    return bool(stated) and (sharded or lora is not None)


def zero_of(value: object) -> int:
    """The ZeRO stage of a config's `zero`: 3, "2-offload", "gemini" (which shards like 3)."""
    if isinstance(value, str) and "gemini" in value:
        return 3
    found = numbers(value)
    return int(found[0]) if found and found[0] <= 3 else 0


def _software(case: Fields, config: Fields, tp: int, pp: int, zero: int) -> Software:
    words = (
        " ".join(str(case.get(key) or "") for key in ("model", "source", "symptom")).lower()
        + str(config).lower()
    )
    if truth(config, "fsdp", "fsdp2", "ddp"):
        return Software.FSDP
    if tp > 1 or pp > 1 or "megatron" in words:
        deepspeed = re.search(r"neox|deepspeed|bigscience", words) and "zero" in config
        return Software.MEGATRON_DEEPSPEED if deepspeed and zero <= 1 else Software.MEGATRON
    return Software.DEEPSPEED


def _offload(config: Fields) -> tuple[Offload, Offload]:
    """(optimizer, parameters)."""
    mode = f"{text(config, 'zero')} {text(config, 'fsdp')} {text(config, 'mode')}"
    words = f"{text(config, 'offload')} {mode}"
    place = Offload.NVME if "nvme" in words else Offload.CPU
    both = truth(config, "offload") or "offload" in mode
    optimizer = params = Offload.NONE
    if both:
        optimizer = place if "offload param" not in mode else Offload.NONE
        sharded = zero_of(config.get("zero")) == 3 or truth(config, "fsdp")
        params = place if sharded and not re.search(r"offload opt(?!.*param)", mode) else params
    stated = {"cpu": Offload.CPU, "nvme": Offload.NVME, "none": Offload.NONE}
    optimizer = stated.get(text(config, "offload_optimizer"), optimizer)
    params = stated.get(text(config, "offload_param"), params)
    return optimizer, params


def _lora(case: Fields, config: Fields) -> Lora | None:
    said = f"{case.get('model') or ''} {case.get('symptom') or ''}"
    words = f"{text(config, 'method') or said}".lower()
    if re.search(r"full ft|full fine|^full\b", words):
        return None
    rank = whole(config, "lora_rank", "lora_dim") or 16
    stated = re.search(r"r ?= ?(\d+)", words)
    rank = int(stated.group(1)) if stated else rank
    if "qlora" in words or "q-lora" in words or truth(config, "load_in_4bit"):
        return Lora(rank=rank, quantized_base=True)
    if re.search(r"\blora", words) or whole(config, "lora_rank", "lora_dim"):
        return Lora(rank=rank)
    return None


def _usual_length(model: ModelSpec, megatron: bool) -> int:
    """Tokens of a sequence where the case does not say: Megatron trains at the model's own length,
    which from Llama 2 on is 4,096 or more; fine-tuning is done at 2,048."""
    return 4096 if megatron and re.search(r"llama-?[23]", model.name.lower()) else 2048


def question_of(
    case: Fields,
    config: Fields,
    gpus: int,
    *,
    model: ModelSpec | None = None,
    gpu: str | None = None,
) -> Question:
    """The question that a case's config asks of that many GPUs.

    config: the case's own, or one row of it laid over. Raises Skip, or pydantic's error where the
    fields make no plan.
    """
    spec = model or model_of(case)
    cluster = cluster_for(case, gpus, gpu)
    geometry: Fields = case.get("geometry") or {}
    seq = whole(config, "seq") or whole(geometry, "seq")
    tp, pp, cp = (whole(config, k) or 1 for k in ("tp", "pp", "cp"))
    dp = whole(config, "dp") or max(1, gpus // (tp * pp * cp))
    if tp * pp * cp * dp != gpus:
        dp = max(1, gpus // (tp * pp * cp))
    zero = zero_of(config.get("zero"))
    software = _software(case, config, tp, pp, zero)
    if software is Software.FSDP and "zero" not in config and not truth(config, "ddp"):
        zero = 3
    sharded = truth(config, "distributed_optimizer")
    if sharded or (software is Software.MEGATRON and "zero" not in config and sharded is None):
        zero = max(zero, 1)
    micro = whole(config, "mbs", "micro_batch", "pp_mbs", "bs") or 1
    batch = whole(config, "gbs", "global_batch")
    filled = 4 * pp if pp > 1 else 1  # a pipeline is never run with fewer
    batch = batch or micro * dp * filled
    accum = whole(config, "gas", "grad_accum") or max(1, batch // (micro * dp))
    checkpointing = truth(config, "act_ckpt", "gradient_checkpointing", "ckpt")
    megatron = software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED)
    if checkpointing is None:
        project = f"{case.get('source') or ''} {case.get('model') or ''}".lower()
        checkpointing = bool(re.search(_CHECKPOINTS_BY_DEFAULT, project))
        checkpointing = checkpointing or bool(seq and seq >= LONG)
        checkpointing = checkpointing or (spec.params > LARGE and pp == 1)
    optimizer, params = _offload(config)
    overlap = truth(config, "overlap", "overlap_comm")
    gpu_spec = cluster.node.gpu
    half = "bf16" if gpu_spec.bf16_tflops and not truth(config, "fp16") else "fp16"
    attention: AttentionKernel = "flash2" if megatron else "sdpa"
    old = re.search(_BEFORE_SDPA, spec.name.lower()) and not truth(config, "flash", "flash_attn")
    if not gpu_spec.bf16_tflops or text(config, "zero") == "gemini" or (old and not megatron):
        attention = "eager"
    lora = _lora(case, config)
    optim = text(config, "optimizer")
    training = TrainingSpec(
        seq_len=seq or (512 if lora else _usual_length(spec, megatron)),
        global_batch=micro * accum * dp,
        precision="bf16" if half == "bf16" else "fp16",
        optimizer="adam8bit" if "8bit" in optim or "8-bit" in optim else "adamw",
        fp32_master="adam bf16" not in optim,
        attention=attention,
        matmul_precision="fp8" if truth(config, "fp8") and gpu_spec.fp8_tflops else None,
        lora=lora,
        stack="hf_trainer" if software is Software.DEEPSPEED else None,
        whole_at_load=_loads_whole(case, config, lora, zero == 3),
    )
    plan = Plan(
        software=software,
        nodes=cluster.nodes,
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        vpp=whole(config, "vpp") or 1,
        sequence_parallel=megatron and tp > 1,
        zero_stage=zero,
        micro_batch=micro,
        grad_accum=accum,
        recompute=Recompute.FULL if checkpointing else Recompute.NONE,
        offload_optimizer=optimizer if zero or software is Software.FSDP else Offload.NONE,
        offload_param=params if zero == 3 else Offload.NONE,
        hpz=whole(config, "hpz") or 1,
        # --overlap-grad-reduce is off by default
        overlap_comm=software is not Software.MEGATRON if overlap is None else overlap,
    )
    return Question(spec, cluster, training, plan)


def bucket_question(row: Fields) -> Question:
    """BERT large under ZeRO 2 on eight V100, with the bucket of a row; its head works on the few
    masked positions, so that the peak is in the layers."""
    model = explicit(
        name="BERT large",
        hidden=1024,
        layers=24,
        heads=16,
        vocab=30522,
        gated=False,
        tied=True,
        family="encoder",
    )
    training = TrainingSpec(
        seq_len=512, global_batch=256, precision="fp16", attention="eager", dropout=0.1
    )
    plan = Plan(
        dp=8,
        zero_stage=2,
        micro_batch=32,
        overlap_comm=bool(row["overlap"]),
        reduce_bucket=int(row["bucket"]),
        chunked_loss=True,
    )
    case = {"cluster": {"gpus": 8, "gpu": "V100-32GB"}}
    return Question(model, cluster_for(case, 8), training, plan)
