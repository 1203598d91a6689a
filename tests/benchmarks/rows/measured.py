"""What a row measured: step time, peak memory and of which kind and rank, out of memory or not."""

import re
from dataclasses import dataclass
from typing import Literal

from cost_model.specs.cluster import Gpu
from cost_model.specs.model import ModelSpec
from tests.benchmarks.rows.assumptions import Ledger
from tests.benchmarks.rows.degrees import Degrees
from tests.benchmarks.rows.raw import RawRow

MemoryKind = Literal["allocated", "reserved", "driver"]
MemoryRank = Literal["worst", "first", "last"]

_GIB = 2.0**30


@dataclass(frozen=True)
class Measured:
    """Measured values; None is not measured."""

    seconds: float | None
    """Of one optimizer step of plan.global_batch sequences."""
    seconds_rounding: float
    """Relative half-width of what rounding in the source leaves open."""
    memory_bytes: float | None
    memory_kind: MemoryKind
    memory_rank: MemoryRank
    oom: bool | None


PLAUSIBLE_MFU = 0.70
"""No published run reaches more; a row above counts padding or tokens that were not computed."""

PLAUSIBLE_ENCODER_MFU = 0.60
"""The same for encoders, whose sequences are padded to their length."""

_UNUSABLE_TIME = (
    (r"deterministic mode", "deterministic kernels"),
    (r"suspect", "marked suspect by its collector"),
    (r"flag as suspicious", "doubted by its own authors"),
    (r"time_per_iteration inconsistent", "times in the source contradict each other"),
    (r'"log-interval": 1[,}]', "functional test that stops to log after every step"),
    (r"variable sequence", "sequences shorter than the longest"),
    (r"training runtime", "run time of a whole job with start-up"),
)


def model_flops(model: ModelSpec, seq: int, sequences: int, causal_half: bool = False) -> float:
    """FLOPs of forward and backward over `sequences` sequences, without recomputation.

    72 B s l h^2 (1 + s/6h + V/12lh) of arXiv 2104.04473 (appendix), for any geometry: 6 FLOPs per
    weight and token, 12 s per attention head element; causal_half counts the lower triangle only.
    """
    weights = model.head_matmul_params
    scores = 0.0
    for kind in model.layer_pattern:
        layer = model.kinds[kind]
        weights += layer.matmul_params
        if layer.moe is not None:
            weights += layer.expert_params // layer.moe.experts * layer.moe.top_k
        if layer.attention is not None:
            scores += layer.attention.heads * layer.attention.head_dim * seq
    return 6.0 * sequences * seq * (weights + 2 * scores * (0.5 if causal_half else 1.0))


def _rate(
    raw: RawRow, model: ModelSpec, seq: int, sequences: int, gpu: Gpu, gpus: int
) -> float | None:
    """Seconds of a step from the printed FLOP rate, by the source's own count of FLOPs."""
    tflops = raw.number("tflops_per_gpu")
    rate = tflops * 1e12 if tflops else None
    flops = model_flops(model, seq, sequences)
    hardware = re.search(r"hardware (flops|tflops|formula)", raw.notes.lower())
    if rate is None:
        mfu, hfu = raw.number("mfu"), raw.number("hfu")
        peak = (gpu.bf16_tflops or gpu.fp16_tflops) * 1e12
        if mfu:
            rate, hardware = mfu * peak, None
        elif hfu:
            rate, hardware = hfu * peak, re.search("", "")
    if rate is None:
        return None
    if hardware:
        # The recomputed forward pass adds a third of everything but the head: 96 B s l h^2.
        head = 6.0 * sequences * seq * model.head_matmul_params
        flops += (flops - head) / 3
    return flops / (rate * gpus)


def _rounding(text: str) -> float:
    """Half of the last printed digit over the value."""
    digits = re.sub(r"[^0-9.]", "", text.split("e", maxsplit=1)[0])
    value = float(digits or 0)
    decimals = len(digits.split(".")[1]) if "." in digits else 0
    return 0.5 * 10.0**-decimals / value if value else 0.0


def _seconds(
    raw: RawRow, model: ModelSpec, degrees: Degrees, gpu: Gpu, ledger: Ledger
) -> tuple[float | None, float]:
    for pattern, _ in _UNUSABLE_TIME:
        if re.search(pattern, raw.notes.lower()):
            return None, 0.0
    seq = raw.integer("seq_len") or 1
    sequences = degrees.micro_batch * degrees.grad_accum * degrees.dp
    whole = sequences / degrees.global_batch
    step = raw.number("step_time_s")
    if step and step > 0:
        return step * whole, _rounding(raw.text("step_time_s"))
    tokens = raw.number("tokens_per_s_per_gpu")
    if tokens and tokens > 0:
        ledger.assume("time_from_tokens")
        rounding = _rounding(raw.text("tokens_per_s_per_gpu"))
        return sequences * seq / (tokens * degrees.gpus), rounding
    derived = _rate(raw, model, seq, sequences, gpu, degrees.gpus)
    if derived is None:
        return None, 0.0
    ledger.assume("time_from_flops")
    printed = raw.text("tflops_per_gpu") or raw.text("mfu") or raw.text("hfu")
    return derived, _rounding(printed)


_NO_MEMORY = r"compiler-estimated|suspect|average per-gpu peak"

_MEMORY: tuple[tuple[str, MemoryKind, MemoryRank], ...] = (
    (r"peak_mem_gb = max_allocated", "allocated", "worst"),
    (r"last rank only", "allocated", "last"),
    (r"rank-0 measured", "allocated", "first"),
    # Read by hand on the first node: a plan read as 13 GB there died on GPUs of 16 GB.
    (r"nvidia-smi-like", "driver", "first"),
    (r"nvidia-smi", "driver", "worst"),
    (r"max_reserved|peak reserved|max reserved", "reserved", "worst"),
    (r"per-rank max_allocated|peak allocated", "allocated", "worst"),
    (r"max total device memory", "driver", "worst"),
    (r"alloc", "allocated", "worst"),
)


def _memory(  # noqa: PLR0911 - one line a framework
    raw: RawRow, ledger: Ledger
) -> tuple[float | None, MemoryKind, MemoryRank]:
    value = raw.number("peak_mem_gb")
    notes, framework = raw.notes.lower(), raw.text("framework").lower()
    # A compiler that shards states as it sees fit leaves no stated memory to compare with.
    compiled = re.search(r"alpa|parax", framework) and not raw.text("zero_stage")
    unknown = bool(compiled or raw.number("oom") == 1 or re.search(_NO_MEMORY, notes))
    if unknown or not value or value <= 0:
        return None, "allocated", "worst"
    if "litgpt" in framework:
        ledger.assume("litgpt_gigabytes")
        return value * 1e9, "allocated", "worst"
    if "nanotron" in framework:
        ledger.assume("nanotron_prints_rank_0")
        return value * _GIB, "reserved", "first"
    for pattern, kind, rank in _MEMORY:
        if re.search(pattern, notes):
            return value * _GIB, kind, rank
    if re.search(
        r"lightning|jean ?zay|internevo", f"{framework} {raw.text('interconnect').lower()}"
    ):
        return value * _GIB, "driver", "worst"
    if re.search(r"torchtitan|torchtrain|composer", framework):
        return value * _GIB, "reserved", "worst"
    ledger.assume("memory_is_allocated")
    return value * _GIB, "allocated", "worst"


def _unpadded(raw: RawRow) -> bool:
    """Whether padding is cut away: NVIDIA's BERT does so in its second phase of 512 tokens."""
    return "ngc" in raw.text("framework").lower() and raw.integer("seq_len") == 512


def _peak(raw: RawRow, gpu: Gpu) -> float:
    """FLOP/s of the data sheet in the format of the row's matrix products."""
    text = raw.text("precision").lower()
    tflops = gpu.bf16_tflops or gpu.fp16_tflops
    if re.search(r"fp8|float8", text):
        tflops = gpu.fp8_tflops or tflops
    elif re.match(r"tf32|fp32", text):
        tflops = gpu.tf32_tflops or gpu.fp32_tflops
    return tflops * 1e12


def measured_of(
    raw: RawRow, model: ModelSpec, degrees: Degrees, gpu: Gpu, ledger: Ledger
) -> Measured:
    """What a row measured.

    degrees: the layout as translated; times are scaled to its whole micro-batches.
    """
    seconds, rounding = _seconds(raw, model, degrees, gpu, ledger)
    if seconds is not None:
        sequences = degrees.micro_batch * degrees.grad_accum * degrees.dp
        causal = model.family == "decoder"
        flops = model_flops(model, raw.integer("seq_len") or 1, sequences, causal_half=causal)
        most = PLAUSIBLE_MFU if causal else PLAUSIBLE_ENCODER_MFU
        if flops / seconds > most * _peak(raw, gpu) * degrees.gpus or _unpadded(raw):
            seconds = None
    memory, kind, rank = _memory(raw, ledger)
    oom = raw.flag("oom")
    return Measured(None if oom else seconds, rounding, memory, kind, rank, oom)
