"""The training of a row: precision, optimizer, kernels, method."""

import re
from typing import Any, Literal

from cost_model.plans import Software
from cost_model.specs.cluster import Gpu
from cost_model.specs.training import AttentionKernel, Lora, Optimizer, Precision, TrainingSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.raw import RawRow
from tests.benchmarks.rows.software import modern, stack_of


def _precision(raw: RawRow, gpu: Gpu, ledger: Ledger) -> Precision:
    text = raw.text("precision").lower()
    if re.match(r"tf32|fp32|float32", text):
        return "fp32"
    if re.search(r"bf16|bfloat16", text):
        return "bf16"
    if re.search(r"fp16|float16|half", text):
        return "fp16"
    if re.search(r"fp8|float8|mxfp|nvfp", text):
        return "bf16"
    ledger.assume("precision_bf16")
    return "bf16" if gpu.bf16_tflops else "fp16"


def _matmul_precision(raw: RawRow, gpu: Gpu, ledger: Ledger) -> Literal["tf32", "fp8"] | None:
    text = raw.text("precision").lower()
    if re.search(r"fp8|float8", text):
        return "fp8"
    if text.startswith("tf32"):
        return "tf32"
    if text.startswith("fp32") and gpu.tf32_tflops:
        ledger.assume("tf32_in_containers")
        return "tf32"
    return None


def kernel_name(raw: RawRow) -> str:
    """The attention and norm kernels as the source names them; empty where it does not."""
    return raw.note("kernel")


def _attention(  # noqa: PLR0911, PLR0912 - one line a spelling
    raw: RawRow, software: Software, gpu: Gpu, ledger: Ledger
) -> AttentionKernel:
    kernel = kernel_name(raw).lower()
    backend = str(raw.arguments.get("attention-backend", "")).lower()
    if kernel:
        if "flash" in kernel:
            return "flash2" if re.search(r"attention.?2|v2", kernel) else "flash1"
        return "fused_softmax" if "fused" in kernel else "eager"
    if backend in ("unfused", "local"):
        return "fused_softmax"
    if backend:
        return "flash2"
    if re.search(r"gemma-?2-\d", raw.text("model_name").lower()):
        ledger.assume("soft_caps_store_scores")
        return "eager"
    flash = raw.flag("flash_attn")
    in_megatron = software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED)
    if flash is None and in_megatron and raw.text("precision").lower().startswith("fp32"):
        ledger.assume("fp32_stores_scores")
        return "fused_softmax"
    if flash is None and raw.arguments.get("transformer-impl") == "local":
        ledger.assume("local_attention")
        return "flash2" if raw.arguments.get("use-flash-attn") else "fused_softmax"
    if (
        flash is None
        and "transformer-impl" in raw.arguments
        and "(lts)" in raw.text("framework").lower()
    ):
        if "draco" in raw.notes and raw.arguments.get("deterministic-mode"):
            ledger.assume("draco_has_no_deterministic_flash")
            return "fused_softmax"
        raise Skip("attention kernel left to the environment")
    if flash and re.search(r"paddlepaddle 2\.[0-5]", raw.text("framework").lower()):
        ledger.assume("paddle_has_flash_1")
        return "flash1"
    if flash:
        return "flash1" if re.search(r"\bv[12]_", raw.notes.lower()) else "flash2"
    if flash is None and (modern(raw) or gpu.generation in ("hopper", "blackwell")):
        ledger.assume("flash_by_age")
        return "sdpa" if raw.text("precision").lower().startswith("fp32") else "flash2"
    compiled = re.search(r"jax|xla|alpa|parax", raw.text("framework").lower())
    plain = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.FSDP)
    if software in plain and not compiled:
        return "eager"
    ledger.assume("fused_softmax")
    return "fused_softmax"


def _fused_norm(raw: RawRow, software: Software, compiled: bool, ledger: Ledger) -> bool:
    kernel = kernel_name(raw)
    if kernel:
        return "RMS" in kernel
    stated = re.search(r"rms_norm=(true|false)", raw.notes.lower())
    if stated:
        return stated.group(1) == "true"
    if compiled or software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED):
        ledger.assume("fused_kernels")
        return True
    return False


def _optimizer(raw: RawRow, ledger: Ledger) -> Optimizer:
    text = f"{raw.text('framework')} {raw.arguments.get('optimizer', '')}".lower()
    if "8-bit" in text:
        return "adam8bit"
    if "muon" in text:
        return "muon"
    if "lamb" in text:
        ledger.assume("lamb_as_adam")
    return "adamw"


def _dropout(raw: RawRow, gated: bool, ledger: Ledger) -> float:
    args = raw.arguments
    if "hidden-dropout" in args or "attention-dropout" in args:
        return float(args.get("attention-dropout", 0.1))
    name = f"{raw.text('framework')} {raw.text('model_name')}".lower()
    if re.search(r"sailor|\bmist\b", name):
        ledger.assume("systems_papers_without_dropout")
        return 0.0
    if args or (
        not gated and re.search(r"megatron|nemo|bert|gpt-?2", name) and "mosaic" not in name
    ):
        ledger.assume("gpt_dropout")
        return 0.1
    return 0.0


def _fused_loss(raw: RawRow, compiled: bool, ledger: Ledger) -> bool:
    name = raw.text("framework").lower()
    pull = re.search(r"PR #(\d+)", raw.text("url"))
    late = (raw.year or 0) >= 2025 or (pull is not None and int(pull.group(1)) >= 650)
    if "torchtitan" in name and compiled and late:
        ledger.assume("torchtitan_compiles_its_loss")
        return True
    if re.search(r"llm-foundry", f"{name} {raw.notes.lower()}"):
        ledger.assume("fused_cross_entropy")
        return True
    return False


def _lora(raw: RawRow, ledger: Ledger) -> Lora | None:
    text = f"{raw.notes} {raw.text('model_name')}".lower()
    if "galore" in text or "adapter" in text.replace("lora/adapter", ""):
        raise Skip("adapter method not modelled")
    if "torchtune" in raw.text("framework").lower() and "full finetune" in text:
        raise Skip("optimizer runs within the backward pass")
    if re.search(r"full finetun|full.yaml|full fine", text):
        return None
    quantized = "qlora" in text or bool(re.search(r"quantization=(bnb|nf4)", text))
    if not quantized and not re.search(r"\blora", text):
        return None
    if "litgpt" in raw.text("framework").lower():
        ledger.assume("litgpt_adapts_q_and_v")
        return Lora(rank=8, targets="attention", quantized_base=quantized, dropout=0.05)
    if "nemo" in raw.text("framework").lower():
        ledger.assume("nemo_lora_on_attention")
        return Lora(rank=8, targets="attention", quantized_base=quantized)
    twice = "torchtune" in raw.text("framework").lower()  # torchao's NF4 scales are of 8 bits
    return Lora(rank=8, quantized_base=quantized, double_quantized=quantized and twice)


def training_of(
    raw: RawRow,
    software: Software,
    gpu: Gpu,
    global_batch: int,
    gated: bool,
    compiled: bool,
    ledger: Ledger,
) -> TrainingSpec:
    """The training specification of a row.

    gpu: for the precision where the row has none. gated: whether the feed-forward is (LLaMA-like
    models have no dropout). compiled: whether a compiler fuses element-wise kernels.
    """
    seq = raw.integer("seq_len")
    if seq is None:
        raise Skip("sequence length not stated")
    more: dict[str, Any] = {}
    text = raw.text("precision").lower()
    if "bf16-true" in text or 'precision "bf16" = whole model' in raw.notes:
        more["fp32_master"] = False
    if "nemo" in raw.text("framework").lower():
        ledger.assume("nemo_16bit_gradients")
        more["fp32_grad_accum"] = False
    if "bridge" in raw.text("framework").lower() and "training performance" in raw.notes.lower():
        ledger.assume("bridge_recipes_reduce_16_bits")
        more["fp32_grad_accum"] = False
    return TrainingSpec(
        seq_len=seq,
        global_batch=global_batch,
        precision=_precision(raw, gpu, ledger),
        matmul_precision=_matmul_precision(raw, gpu, ledger),
        optimizer=_optimizer(raw, ledger),
        attention=_attention(raw, software, gpu, ledger),
        fused_norm=_fused_norm(raw, software, compiled, ledger),
        dropout=_dropout(raw, gated, ledger),
        lora=_lora(raw, ledger),
        stack=stack_of(raw, software),
        fused_loss=_fused_loss(raw, compiled, ledger),
        **more,
    )
