"""Published geometry of models that measurements name without printing it.

From the catalogue where it has the model; the rest are facts of the models' own config.json.
"""

import re
from dataclasses import dataclass

from cost_model import catalogue
from cost_model.specs.model import ModelSpec


@dataclass(frozen=True)
class Geometry:
    """What a config.json says of a transformer's size."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    head_dim: int = 0
    parallel: bool = False


_IN_CATALOGUE: tuple[tuple[str, str], ...] = (
    (r"mixtral.?8x7b", "mixtral-8x7b"),
    (r"mixtral.?8x22b", "mixtral-8x22b"),
    (r"qwen3.?30b", "qwen3-30b-a3b"),
    (r"qwen3.?235b", "qwen3-235b-a22b"),
    (r"tiny.?llama", "tinyllama-1.1b"),
    (r"llama.?3\.2.?1b", "llama-3.2-1b"),
    (r"llama.?3\.2.?3b", "llama-3.2-3b"),
    (r"llama.?3(\.1)?.?8b", "llama-3.1-8b"),
    (r"llama.?3(\.1)?.?70b", "llama-3.1-70b"),
    (r"llama.?3(\.1)?.?405b", "llama-3.1-405b"),
    (r"llama.?2?.?70b", "llama-2-70b"),
    (r"llama.?65b", "llama-65b"),
    (r"llama.?3[03]b", "llama-30b"),
    (r"llama.?2?.?13b", "llama-2-13b"),
    (r"llama.?2?.?7b", "llama-2-7b"),
    (r"mistral.?7b", "mistral-7b"),
    (r"qwen2\.5.?7b", "qwen2.5-7b"),
    (r"qwen2\.5.?32b", "qwen2.5-32b"),
    (r"qwen2\.5.?72b", "qwen2.5-72b"),
    (r"gpt.?2.?xl", "gpt2-xl"),
    (r"gpt.?3.?175b", "gpt-3-175b"),
)

_KNOWN: tuple[tuple[str, Geometry], ...] = (
    # nanotron's benchmark models: LLaMA 3 shapes, multi-head attention, vocabulary 131,072; the
    # printed sizes (1.34, 3.57, 8.86, 80.0 billion) come out to the last digit.
    (r"llama-like.1\.34", Geometry(2048, 16, 32, 32, 8192, 131072, True, True)),
    (r"llama-like.3\.57", Geometry(3072, 28, 24, 24, 8192, 131072, True, True)),
    (r"llama-like.8\.86", Geometry(4096, 32, 32, 32, 14336, 131072)),
    (r"llama-like.80", Geometry(8192, 80, 64, 64, 28672, 131072)),
    (r"code.?llama.?7b", Geometry(4096, 32, 32, 32, 11008, 32016)),
    (r"gemma.?2b", Geometry(2048, 18, 8, 1, 16384, 256000, True, True, head_dim=256)),
    (r"gemma.?7b", Geometry(3072, 28, 16, 16, 24576, 256000, True, True, head_dim=256)),
    (r"phi.?2", Geometry(2560, 32, 32, 32, 10240, 51200, False, parallel=True)),
    (r"falcon.?7b", Geometry(4544, 32, 71, 1, 18176, 65024, False, True, parallel=True)),
    (r"falcon.?40b", Geometry(8192, 60, 128, 8, 32768, 65024, False, True, parallel=True)),
    (r"stablelm.*alpha.?3", Geometry(4096, 16, 32, 32, 16384, 50432, False, parallel=True)),
    (r"gpt-?neox.?20b", Geometry(6144, 44, 64, 64, 24576, 50432, False, parallel=True)),
    (r"bert.?large", Geometry(1024, 24, 16, 16, 4096, 30528, False, True)),
    (r"bert.?base", Geometry(768, 12, 12, 12, 3072, 30528, False, True)),
    (r"chatglm3.?6b", Geometry(4096, 28, 32, 2, 13696, 65024)),
    (r"baichuan2?.?13b", Geometry(5120, 40, 40, 40, 13696, 125696)),
)


def known(name: str) -> Geometry | None:
    """The published geometry of a model of that name, or None."""
    text = re.sub(r"[_/ ]+", "-", name.lower())
    for pattern, geometry in _KNOWN:
        if re.search(pattern, text):
            return geometry
    for pattern, entry in _IN_CATALOGUE:
        if re.search(pattern, text):
            return _of(catalogue.model(entry))
    return None


def _of(model: ModelSpec) -> Geometry:
    layer = model.kinds[model.layer_pattern[-1]]
    attention, moe = layer.attention, layer.moe
    assert attention is not None
    return Geometry(
        hidden=model.hidden,
        layers=model.layers,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        ffn=layer.mlp.intermediate if layer.mlp else moe.intermediate if moe else 0,
        vocab=model.vocab,
        gated=layer.mlp.gated if layer.mlp else True,
        tied=model.tied_embeddings,
        experts=moe.experts if moe else 0,
        top_k=moe.top_k if moe else 0,
        expert_ffn=moe.intermediate if moe else 0,
        head_dim=attention.head_dim,
    )
