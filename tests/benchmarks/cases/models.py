"""From a case's fields to a model."""

import re

from cost_model.specs.geometry import explicit
from cost_model.specs.model import ModelSpec
from tests.benchmarks.cases.fields import Fields, first_number, numbers, whole
from tests.benchmarks.rows.assumptions import Skip
from tests.benchmarks.rows.known import Geometry, known

_PUBLISHED_ELSEWHERE: tuple[tuple[str, Geometry], ...] = (
    (r"qwen1?\.?5?-1\.8b", Geometry(2048, 24, 16, 16, 5504, 151936)),
    (r"qwen1?\.?5?-7b", Geometry(4096, 32, 32, 32, 11008, 151936)),
    (r"qwen1?\.?5?-14b", Geometry(5120, 40, 40, 40, 13696, 152064)),
    (r"qwen1?\.?5?-72b", Geometry(8192, 80, 64, 64, 24576, 152064)),
    (r"qwen2-1\.5b", Geometry(1536, 28, 12, 2, 8960, 151936, True, True)),
    (r"opt-1\.3b", Geometry(2048, 24, 32, 32, 8192, 50272, False, True)),
    (r"opt-66b", Geometry(9216, 64, 72, 72, 36864, 50272, False, True)),
    (r"mpt-1b", Geometry(2048, 24, 16, 16, 8192, 50368, False, True)),
)


def _by_name(name: str) -> Geometry | None:
    for pattern, geometry in _PUBLISHED_ELSEWHERE:
        if re.search(pattern, name.lower()):
            return geometry
    return known(name)


def _by_size(billions: float, vocab: int) -> ModelSpec:
    """A GPT of about that many parameters: hidden = 128 x layers, which GPT-3's sizes follow."""
    hidden = max(256, round((billions * 1e9 * 128 / 12) ** (1 / 3) / 128) * 128)
    layers = max(1, round((billions * 1e9 - vocab * hidden) / (12 * hidden * hidden)))
    return explicit(
        name=f"GPT {billions:g}B",
        hidden=hidden,
        layers=layers,
        heads=max(1, hidden // 128),
        vocab=vocab,
        gated=False,
    )


def model_of(case: Fields, params_b: float | None = None, name: str | None = None) -> ModelSpec:
    """The model of a case.

    params_b: which of several sizes. name: which of several models. Skip where neither geometry,
    name nor size says anything.
    """
    geometry: Fields = case.get("geometry") or {}
    title = name or str(case.get("model") or "")
    hidden, layers = whole(geometry, "hidden", "d_model"), whole(geometry, "layers")
    published = _by_name(title)
    size = params_b or first_number(geometry, "params_b")
    if size is None and (in_name := re.search(r"(\d+(?:\.\d+)?) ?b\b", title.lower())):
        size = float(in_name.group(1))
    if (hidden is None or layers is None) and published is None:
        if size is None:
            raise Skip("model not stated")
        return _by_size(size, whole(geometry, "vocab") or 50257)
    base = published or Geometry(
        hidden=hidden or 0, layers=layers or 0, heads=0, kv_heads=0, ffn=0, vocab=50257
    )
    heads = whole(geometry, "heads") or base.heads or max(1, (hidden or base.hidden) // 128)
    kv_heads = whole(geometry, "kv_heads") or base.kv_heads or heads
    width = hidden or base.hidden
    ffn = whole(geometry, "ffn", "d_ff") or base.ffn
    gated = published.gated if published else _gated(title, width, ffn, kv_heads < heads)
    decoder_and_encoder = bool(geometry.get("encdec"))
    layer_counts = numbers(geometry.get("layers"))
    return explicit(
        name=title or "unnamed",
        hidden=width,
        layers=layers or base.layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=(base.head_dim or None) if published else None,
        intermediate=ffn or None,
        vocab=whole(geometry, "vocab") or base.vocab,
        gated=gated,
        tied=bool(geometry.get("tied")) or (published.tied if published else not gated),
        parallel_residual=bool(geometry.get("parallel_attn")),
        family="encoder_decoder" if decoder_and_encoder else "decoder",
        encoder_layers=int(layer_counts[-1]) if decoder_and_encoder and layer_counts else None,
    )


def _gated(name: str, hidden: int, ffn: int, grouped: bool) -> bool:
    if re.search(r"llama|qwen|mistral|gemma|glm|deepseek", name.lower()):
        return True
    return grouped or bool(ffn and hidden and ffn % (4 * hidden) and ffn != 4 * hidden)
