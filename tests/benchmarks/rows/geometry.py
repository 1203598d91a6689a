"""The model of a row: printed geometry, completed by named assumptions."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from cost_model.specs.geometry import explicit
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.known import Geometry, catalogue_model, catalogue_name, known
from tests.benchmarks.rows.raw import RawRow

_NOT_TEXT = (
    (r"resnet|vit\b|gan\b|unet|diffusion", "no transformer on text"),
    (r"mamba|nemotron.?3.?nano|hybrid", "state-space layers"),
    (r"\bm?t5\b|t0_|mt0|encoder-decoder", "encoder-decoder, geometry not stated"),
)

_VOCABULARIES = (
    (r"llama.?3", 128256),
    (r"llama|vicuna|mistral|alpaca", 32000),
    (r"mpt", 50368),
    (r"bert", 30528),
    (r"opt\b", 50272),
    (r"bloom", 250880),
    (r"qwen3|qwen2", 151936),
    (r"gpt|megatron|bigscience", 51200),
)

_GATED = r"llama|mistral|mixtral|qwen|gemma|baichuan|chatglm|internlm|aquila|deepseek|yi-"
_SQUAD_TOKENS = 192
"""Tokens of a question of SQuAD with its paragraph and answer, on average."""


@dataclass(frozen=True)
class Shape:
    """Everything that the counts of parameters need."""

    name: str
    family: Literal["decoder", "encoder"]
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool
    rms: bool
    biases: bool
    tied: bool
    positions: int
    """Rows of a learned position table; 0 has none."""
    has_head: bool = True
    parallel: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    """Leading layers without experts."""


@cache
def build(shape: Shape) -> ModelSpec:
    """The specification of a shape; equal shapes share one object."""
    experts: dict[str, Any] = {}
    if shape.experts:
        experts = {
            "experts": shape.experts,
            "top_k": shape.top_k,
            "moe_intermediate": shape.expert_ffn,
            "first_dense_layers": shape.dense_layers,
        }
    spec = explicit(
        name=shape.name,
        family=shape.family,
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate=shape.ffn,
        vocab=shape.vocab,
        gated=shape.gated,
        norm="rmsnorm" if shape.rms else "layernorm",
        position="learned" if shape.positions else "rotary",
        max_seq_len=shape.positions or None,
        bias=shape.biases,
        tied=shape.tied,
        parallel_residual=shape.parallel,
        **experts,
    )
    if shape.has_head:
        return spec
    output = 0 if shape.tied else shape.vocab * shape.hidden
    return spec.model_copy(
        update={"head_params": spec.head_params - output, "head_matmul_params": 0}
    )


def _first(*values: int | None) -> int | None:
    return next((v for v in values if v), None)


def _experts(raw: RawRow, published: Geometry | None) -> tuple[int, int, int, int]:
    """(experts, top_k, expert width, leading dense layers) of a row."""
    args = raw.arguments
    if args.get("num-experts"):
        frequency = re.match(r"\(\[0\]\*(\d+)\+\[1\]\*\d+\)", str(args.get("moe-layer-freq", "")))
        return (
            int(args["num-experts"]),
            int(args.get("moe-router-topk", 2)),
            int(args.get("moe-ffn-hidden-size") or raw.integer("ffn_hidden") or 0),
            int(frequency.group(1)) if frequency else 0,
        )
    if published and published.experts:
        return published.experts, published.top_k, published.expert_ffn, 0
    if re.search(r"\bmoe\b", raw.text("model_name").lower()):
        raise Skip("mixture of experts, their number not stated")
    return 0, 0, 0, 0


def _vocab(raw: RawRow, name: str, published: Geometry | None, ledger: Ledger) -> int:
    vocab = raw.integer("vocab")
    if vocab is not None:
        return vocab
    if published:
        return published.vocab
    ledger.assume("vocab_of_family")
    for pattern, size in _VOCABULARIES:
        if re.search(pattern, name.lower()):
            return size
    return 51200


def _padded(vocab: int, tp: int, raw: RawRow) -> int:
    """Megatron pads the vocabulary to a multiple of 128 x TP (`make-vocab-size-divisible-by`)."""
    if not re.search("megatron|nemo", raw.text("framework").lower()):
        return vocab
    unit = int(raw.arguments.get("make-vocab-size-divisible-by", 128)) * tp
    return -(-vocab // unit) * unit


def model_of(raw: RawRow, tp: int, ledger: Ledger) -> ModelSpec:
    """The model of a row; Skip where its size cannot be known.

    tp: tensor-parallel degree, to which Megatron pads the vocabulary.
    """
    name = raw.text("model_name")
    listed = _from_catalogue(raw, name, tp, ledger)
    if listed is not None:
        return listed
    published = known(name)
    hidden, layers = raw.integer("hidden"), raw.integer("layers")
    if hidden is None or layers is None:
        if published is None:
            raise Skip("model geometry not stated")
        ledger.assume("geometry_from_name")
        hidden, layers = hidden or published.hidden, layers or published.layers
    elif published and published.hidden != hidden:
        published = None
    encoder = bool(re.search(r"\bbert|roberta|deberta", name.lower()))
    gated = raw.flag("gated_mlp")
    if gated is None:
        ledger.assume("gated_from_name")
        gated = published.gated if published else bool(re.search(_GATED, name.lower()))
    heads = _first(raw.integer("heads"), published.heads if published else None)
    if heads is None:
        ledger.assume("heads_of_128")
        heads = max(1, hidden // (128 if hidden >= 2048 and hidden % 128 == 0 else 64))
    kv_heads = _first(raw.integer("kv_heads"), published.kv_heads if published else None)
    if kv_heads is None:
        ledger.assume("kv_heads_are_heads")
        kv_heads = heads
    head_dim = int(raw.arguments.get("kv-channels", 0)) or (published.head_dim if published else 0)
    head_dim = head_dim or hidden // heads
    ffn = _first(raw.integer("ffn_hidden"), published.ffn if published else None)
    if ffn is None:
        ledger.assume("gated_ffn_is_8h_over_3" if gated else "ffn_is_4h")
        ffn = -(-(8 * hidden // 3) // 256) * 256 if gated else 4 * hidden
    experts, top_k, expert_ffn, dense = _experts(raw, published)
    vocab = _padded(_vocab(raw, name, published, ledger), tp, raw)
    args = raw.arguments
    rotary = gated or args.get("position-embedding-type") == "rope"
    rotary = rotary or bool(re.search("neox|falcon|stablelm|phi|rope", name.lower()))
    seq = raw.integer("seq_len") or 0
    if not rotary:
        ledger.assume("learned_positions")
    shape = Shape(
        name=name or "unnamed",
        family="encoder" if encoder else "decoder",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        gated=gated,
        rms=args.get("normalization") == "RMSNorm" or (gated and "normalization" not in args),
        biases=not gated and not args.get("disable-bias-linear"),
        tied=False,
        positions=0 if rotary else seq,
        has_head="no LM head" not in raw.notes,
        parallel=bool(published and published.parallel),
        experts=experts,
        top_k=top_k,
        expert_ffn=expert_ffn,
        dense_layers=dense,
    )
    return _masked(build(_tie(shape, raw, published, ledger)), raw, ledger)


def _from_catalogue(raw: RawRow, name: str, tp: int, ledger: Ledger) -> ModelSpec | None:
    """The catalogue's model where the row leaves geometry blank and contradicts none of it."""
    blank = [k for k in ("hidden", "layers", "heads", "ffn_hidden") if raw.integer(k) is None]
    entry = catalogue_name(name)
    if not blank or entry is None:
        return None
    whole = catalogue_model(entry, None, None)
    hidden, layers = raw.integer("hidden"), raw.integer("layers")
    if whole is None or (hidden is not None and hidden != whole.hidden):
        return None
    cut = layers if layers != whole.layers else None
    vocab = _padded(raw.integer("vocab") or whole.vocab, tp, raw)
    apart = "litgpt" in raw.text("framework").lower() and whole.tied_embeddings
    found = catalogue_model(entry, cut, vocab if vocab != whole.vocab else None, untied=apart)
    if found is not None:
        ledger.assume("geometry_from_name")
        if apart:
            ledger.assume("litgpt_unties")
        return found.model_copy(update={"name": name})
    return None


def refuse(raw: RawRow) -> None:
    """Skip what is no transformer on text, or has parts whose size the row does not give."""
    name = raw.text("model_name")
    for pattern, reason in _NOT_TEXT:
        if re.search(pattern, name.lower()):
            raise Skip(reason)
    if raw.arguments.get("multi-latent-attention"):
        raise Skip("latent attention's ranks not stated")
    if "distill" in raw.notes.lower():
        raise Skip("two models at once")
    if raw.arguments.get("mtp-num-layers"):
        raise Skip("multi-token prediction")


def _masked(model: ModelSpec, raw: RawRow, ledger: Ledger) -> ModelSpec:
    """The model with the output matrix as it is used: BERT's at masked positions only."""
    if model.family == "encoder" and "ngc" in raw.text("framework").lower():
        ledger.assume("masked_head")
        masked = int(0.15 * model.head_matmul_params)
        return model.model_copy(update={"head_matmul_params": masked})
    return model


def as_computed(raw: RawRow, model: ModelSpec, training: TrainingSpec, ledger: Ledger) -> ModelSpec:
    """The model with the mask as the run's attention kernel used it."""
    name = f"{raw.text('framework')} {raw.notes}".lower()
    if training.attention == "flash2" and re.search(r"llm-foundry", name):
        ledger.assume("whole_square")
        return _masked_as(model, causal=False)
    if "packed squad" in name:
        ledger.assume("packed_sequences")
        return _masked_as(model, window=_SQUAD_TOKENS)
    return model


@cache
def _masked_as(model: ModelSpec, causal: bool = True, window: int | None = None) -> ModelSpec:
    mask = {"causal": causal, "window": window}
    kinds = tuple(
        kind.model_copy(update={"attention": kind.attention.model_copy(update=mask)})
        if kind.attention
        else kind
        for kind in model.kinds
    )
    return model.model_copy(update={"kinds": kinds})


def _tie(shape: Shape, raw: RawRow, published: Geometry | None, ledger: Ledger) -> Shape:
    """The shape with its output matrix tied or not."""
    tied, untied = replace(shape, tied=True), shape
    if "untie-embeddings-and-output-weights" in raw.arguments:
        return untied
    if raw.arguments:
        return tied
    if published:
        return tied if published.tied else untied
    params = raw.number("params_b")
    if params and shape.has_head:
        gap = {t: abs(build(s).params / 1e9 / params - 1) for t, s in ((1, tied), (0, untied))}
        if min(gap.values()) < 0.03 and abs(gap[0] - gap[1]) > 0.004:
            ledger.assume("tied_by_count")
            return tied if gap[1] < gap[0] else untied
    ledger.assume("tied_by_family")
    return untied if shape.gated else tied
