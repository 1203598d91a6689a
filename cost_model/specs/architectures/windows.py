"""Which layers attend to a sliding window, by the several conventions of config.json."""

from collections.abc import Callable

from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.errors import SpecError

Windows = tuple[int | None, ...]
KNOWN = ("full_attention", "sliding_attention", "chunked_attention")


def without(c: Fields, layers: int) -> Windows:
    """Every layer attends to the whole sequence."""
    layer_types(c, layers)
    return (None,) * layers


def everywhere(c: Fields, layers: int) -> Windows:
    """`sliding_window` holds for every layer (Mistral 7B)."""
    return (_window(c),) * layers


def if_used_everywhere(c: Fields, layers: int) -> Windows:
    """`sliding_window` holds for every layer where `use_sliding_window` says so (Qwen3-MoE)."""
    return everywhere(c, layers) if c.boolean("use_sliding_window") else without(c, layers)


def after_max_window_layers(c: Fields, layers: int) -> Windows:
    """Qwen2: with `use_sliding_window`, the layers from `max_window_layers` on have the window."""
    if not c.boolean("use_sliding_window", null=True):
        return without(c, layers)
    first = c.integer("max_window_layers", null=layers, minimum=0)
    return _typed(c, layers, lambda i: i >= first)


def before_max_window_layers(c: Fields, layers: int) -> Windows:
    """Qwen2-MoE: with `use_sliding_window`, every other layer up to `max_window_layers`."""
    if not c.boolean("use_sliding_window"):
        return without(c, layers)
    last = c.integer("max_window_layers", null=layers, minimum=0)
    return _typed(c, layers, lambda i: i % 2 == 0 and i < last)


def full_every(period: int) -> Callable[[Fields, int], Windows]:
    """Without `layer_types`, every so manyth layer sees all, the others the window."""
    return lambda c, layers: _typed(c, layers, lambda i: (i + 1) % period != 0)


def full_every_pattern(period: int) -> Callable[[Fields, int], Windows]:
    """The same, with the period in the older field `sliding_window_pattern`; 0 is no window."""

    def windows(c: Fields, layers: int) -> Windows:
        given = c.integer("sliding_window_pattern", null=period, minimum=0)
        return _typed(c, layers, lambda i: given > 0 and (i + 1) % given != 0)

    return windows


def first_full_every(period: int) -> Callable[[Fields, int], Windows]:
    """Every so manyth layer sees all, beginning with the first (CWM)."""
    return lambda c, layers: _typed(c, layers, lambda i: i % period != 0)


def as_typed(c: Fields, layers: int) -> Windows:
    """`layer_types` alone says; without it every layer sees all."""
    return _typed(c, layers, lambda _: False)


def all_or_typed(c: Fields, layers: int) -> Windows:
    """`layer_types` says; without it every layer has the window."""
    return _typed(c, layers, lambda _: True)


def _typed(c: Fields, layers: int, slides: Callable[[int], bool]) -> Windows:
    """The window of each layer by `layer_types`, or by the rule where it is not given."""
    window = _window(c)
    kinds = layer_types(c, layers)
    if kinds is None:
        return tuple(window if slides(i) else None for i in range(layers))
    chunk = c.optional_integer("attention_chunk_size", minimum=0)
    spans = {"sliding_attention": window, "chunked_attention": chunk}
    return tuple(spans.get(kind) for kind in kinds)


def _window(c: Fields) -> int | None:
    """The window; 0 stands for none in some files."""
    return c.optional_integer("sliding_window", minimum=0) or None


def layer_types(
    c: Fields, layers: int, known: tuple[str, ...] = KNOWN, name: str = "layer_types"
) -> tuple[str, ...] | None:
    """A list with one entry a layer, checked for length and names; None where not given."""
    kinds = c.texts(name)
    if kinds is None:
        return None
    if len(kinds) != layers:
        raise c.error(name, f"must have one entry for each of the {layers} layers")
    for i, kind in enumerate(kinds):
        if kind not in known:
            wanted = f"must be one of {', '.join(known)}: other kinds of layer are not supported"
            raise SpecError(pointer_to(c.at(name), i), kind, wanted)
    return kinds
