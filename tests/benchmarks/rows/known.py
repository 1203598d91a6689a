"""Published geometry of models that measurements name without printing it.

From the catalogue where it has the model; the rest are facts of the models' own config.json.
"""

import re
from dataclasses import dataclass
from functools import cache

from cost_model import catalogue
from cost_model.specs import from_config
from cost_model.specs.errors import SpecError
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


_ALIASES: tuple[tuple[str, str], ...] = (
    (r"moonlight", "moonlight-16b-a3b"),
    (r"tiny-?llama", "tinyllama-1.1b"),
    (r"llama-?3-3b", "llama-3.2-3b"),
    (r"llama-33b", "llama-30b"),
    (r"deepseek-?v2$", "deepseek-v2"),
)
"""Other names under which measurements know models of the catalogue."""

_KNOWN: tuple[tuple[str, Geometry], ...] = (
    # nanotron's benchmark models: LLaMA 3 shapes, multi-head attention, vocabulary 131,072; the
    # printed sizes (1.34, 3.57, 8.86, 80.0 billion) come out to the last digit.
    (r"llama-like.1\.34", Geometry(2048, 16, 32, 32, 8192, 131072, True, True)),
    (r"llama-like.3\.57", Geometry(3072, 28, 24, 24, 8192, 131072, True, True)),
    (r"llama-like.8\.86", Geometry(4096, 32, 32, 32, 14336, 131072)),
    (r"llama-like.80", Geometry(8192, 80, 64, 64, 28672, 131072)),
    # arXiv 2402.16819 and 2406.11704: Nemotron-4 15B and 340B, squared ReLU; NeMo's 8B before them.
    (r"nemotron.*340b", Geometry(18432, 96, 96, 8, 73728, 256000, False)),
    (r"nemotron.*15b", Geometry(6144, 32, 48, 8, 24576, 256000, False)),
    (r"nemotron.*8b", Geometry(4096, 32, 32, 32, 16384, 256000, False)),
    (r"mpt-70b", Geometry(8192, 80, 64, 64, 32768, 50368, False, True)),
    (r"code.?llama.?7b", Geometry(4096, 32, 32, 32, 11008, 32016)),
    (r"stablelm.*alpha.?3", Geometry(4096, 16, 32, 32, 16384, 50432, False, parallel=True)),
    (r"chatglm3.?6b", Geometry(4096, 28, 32, 2, 13696, 65024)),
    (r"baichuan2?.?13b", Geometry(5120, 40, 40, 40, 13696, 125696)),
)


def known(name: str) -> Geometry | None:
    """The published geometry of a model of that name, or None."""
    text = re.sub(r"[_/ ]+", "-", name.lower())
    for pattern, geometry in _KNOWN:
        if re.search(pattern, text):
            return geometry
    entry = catalogue_name(name)
    return _of(catalogue.model(entry)) if entry else None


@cache
def catalogue_name(name: str) -> str | None:
    """The catalogue's entry for a model's name as people write it, or None.

    `Llama 2 13 B`, `LLAMA2-13B` and `llama2_13b` are llama-2-13b; the longest entry wins.
    """
    text = re.sub(r"[_/ ]+", "-", name.lower())
    text = re.sub(r"(\d)-b\b", r"\1b", text)
    for pattern, listed in _ALIASES:
        if re.search(pattern, text):
            return listed
    found = [entry for entry in catalogue.model_names() if _pattern(entry).search(text)]
    entry = max(found, key=len, default=None)
    size = re.search(r"(\d+(?:\.\d+)?)b\b", text)
    if entry is None or size is None or re.search(r"\d[bm]", entry):
        return entry
    # `GPT2 7.5B` is not gpt2, whose entry names no size.
    billions = catalogue.model(entry).params / 1e9
    return entry if abs(billions / float(size.group(1)) - 1) < 0.2 else None


@cache
def _pattern(entry: str) -> re.Pattern[str]:
    words = "-?".join(re.escape(word) for word in entry.split("-"))
    words = re.sub(r"(?<=[a-z])(?=\d)", "-?", words)
    return re.compile(rf"(?<![a-z0-9]){words}(?![a-z0-9])")


@cache
def catalogue_model(
    entry: str, layers: int | None, vocab: int | None, untied: bool = False
) -> ModelSpec | None:
    """A model of the catalogue, cut to `layers` and with `vocab` words where given.

    untied: its output matrix is one of its own in any case.
    None where its config cannot be cut (a pattern of layers of its own length).
    """
    config = catalogue.model_config(entry)
    if layers is not None:
        count = next((k for k in ("num_hidden_layers", "n_layer", "num_layers") if k in config), "")
        if not count or layers > int(config[count]):
            return None
        config[count] = layers
        config.pop("layer_types", None)
    if vocab is not None:
        config["vocab_size"] = vocab
    if untied:
        config["tie_word_embeddings"] = False
    try:
        return from_config(config)
    except SpecError:
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
