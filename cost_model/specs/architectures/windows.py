"""Which layers attend to a sliding window, by the several conventions of config.json."""

from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.errors import SpecError

Windows = tuple[int | None, ...]


def everywhere(c: Fields, layers: int) -> Windows:
    """`sliding_window` holds for every layer (Mistral 7B)."""
    return (c.optional_integer("sliding_window"),) * layers


def after_max_window_layers(c: Fields, layers: int) -> Windows:
    """Qwen: with `use_sliding_window`, the layers from `max_window_layers` on have the window."""
    window = c.optional_integer("sliding_window") if c.boolean("use_sliding_window") else None
    kinds = layer_types(c, layers)
    if kinds is None:
        first = c.integer("max_window_layers", null=layers, minimum=0)
        return tuple(window if i >= first else None for i in range(layers))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def by_layer_types(c: Fields, layers: int, full_every: int | None = None) -> Windows:
    """`layer_types` names each layer; else every `full_every`-th layer is full, None all full."""
    window = c.optional_integer("sliding_window")
    kinds = layer_types(c, layers)
    if kinds is None:
        if full_every is None:
            return (None,) * layers
        return tuple(None if (i + 1) % full_every == 0 else window for i in range(layers))
    chunk = c.optional_integer("attention_chunk_size")
    spans = {"sliding_attention": window, "chunked_attention": chunk, "full_attention": None}
    return tuple(spans[kind] for kind in kinds)


def layer_types(
    c: Fields,
    layers: int,
    known: tuple[str, ...] = ("full_attention", "sliding_attention", "chunked_attention"),
) -> tuple[str, ...] | None:
    """`layer_types`, checked for length and names; None where not given."""
    kinds = c.texts("layer_types")
    if kinds is None:
        return None
    if len(kinds) != layers:
        raise c.error("layer_types", f"must have one entry for each of the {layers} layers")
    for i, kind in enumerate(kinds):
        if kind not in known:
            wanted = f"must be one of {', '.join(known)}: other kinds of layer are not supported"
            raise SpecError(pointer_to(c.at("layer_types"), i), kind, wanted)
    return kinds
