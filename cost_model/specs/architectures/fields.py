"""Typed reading of a config.json: every error names the field, what it held and what would do."""

from collections.abc import Mapping, Sequence
from typing import Final

from cost_model.specs.errors import SpecError

MAX_INT: Final = 2**40
MAX_LAYERS: Final = 10_000
"""A guard against a typing error that would build a list of a billion layers."""


def pointer_to(parent: str, key: str | int) -> str:
    """The JSON pointer of a member (RFC 6901 escapes)."""
    return f"{parent}/{str(key).replace('~', '~0').replace('/', '~1')}"


class Fields:
    """A JSON object with the defaults of its configuration class behind it.

    `null` counts as absent where the reader says what absence means (`null=`). A field may go
    under another name (`attribute_map` of the class), either way round: GPT-2's `n_embd` also as
    `hidden_size`, Qwen3-MoE's `num_experts` also as `num_local_experts`.
    """

    def __init__(
        self,
        data: object,
        pointer: str = "",
        defaults: Mapping[str, object] | None = None,
        aliases: Mapping[str, str] | None = None,
    ):
        if not isinstance(data, Mapping):
            raise SpecError(pointer, data, "must be an object")
        self.data: Mapping[str, object] = data
        self.pointer = pointer
        self._defaults = defaults or {}
        self._aliases: dict[str, list[str]] = {}
        for alias, name in (aliases or {}).items():
            self._aliases.setdefault(name, []).append(alias)
            self._aliases.setdefault(alias, []).append(name)
        self._used: dict[str, int] = {}

    def at(self, name: str) -> str:
        """The pointer of a field, under the alias that is present."""
        return pointer_to(self.pointer, self._key(name) or name)

    def _key(self, name: str) -> str | None:
        keys: list[str] = [name, *self._aliases.get(name, [])]
        return next((key for key in keys if key in self.data), None)

    def given(self, name: str) -> bool:
        """Whether the document itself holds the field, and not as null."""
        key = self._key(name)
        return key is not None and self.data[key] is not None

    def value(self, name: str) -> object:
        """The raw value, the class's default where the field is absent, or None."""
        key = self._key(name)
        if key is not None:
            return self.data[key]
        names = (name, *self._aliases.get(name, ()))
        default = next((self._defaults[n] for n in names if n in self._defaults), None)
        if isinstance(default, int) and not isinstance(default, bool):
            self._used[name] = default
        return default

    def defaults_used(self) -> tuple[tuple[str, int], ...]:
        """Integers that were read and came from the class's defaults, by name."""
        return tuple(sorted(self._used.items()))

    def error(self, name: str, wanted: str) -> SpecError:
        """The error of one field."""
        return SpecError(self.at(name), self.value(name), wanted)

    def integer(
        self, name: str, *, null: int | None = None, minimum: int = 1, maximum: int = MAX_INT
    ) -> int:
        """An integer; `null` is what null or absence without default means."""
        found = self.optional_integer(name, minimum=minimum, maximum=maximum)
        if found is not None:
            return found
        if null is not None:
            return null
        raise self.error(name, f"must be an integer of at least {minimum}")

    def optional_integer(
        self, name: str, *, minimum: int = 1, maximum: int = MAX_INT
    ) -> int | None:
        """An integer, or None for null."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(name, f"must be an integer of at least {minimum}")
        if value > maximum:
            raise self.error(name, f"must be an integer of at most {maximum}")
        return value

    def layers(self, name: str = "num_hidden_layers") -> int:
        """A number of layers."""
        return self.integer(name, maximum=MAX_LAYERS)

    def boolean(self, name: str, *, null: bool = False) -> bool:
        """A truth value."""
        value = self.value(name)
        if value is None:
            return null
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def number(self, name: str, *, null: float = 0.0, minimum: float = 0.0) -> float:
        """A finite number of at least `minimum`."""
        value = self.value(name)
        if value is None:
            return null
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(name, "must be a number")
        if not minimum <= value < float("inf"):
            raise self.error(name, f"must be a finite number of at least {minimum:g}")
        return float(value)

    def text(self, name: str, *, null: str = "", among: Sequence[str] = ()) -> str:
        """A string, one of `among` where that is given."""
        value = self.value(name)
        if value is None:
            return null
        if not isinstance(value, str):
            raise self.error(name, "must be a string")
        if among and value not in among:
            raise self.error(name, f"must be one of {', '.join(among)}")
        return value

    def integers(self, name: str, *, minimum: int = 0) -> tuple[int, ...] | None:
        """A list of integers, or None."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.error(name, "must be a list of integers")
        for i, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int) or item < minimum:
                wanted = f"must be an integer of at least {minimum}"
                raise SpecError(pointer_to(self.at(name), i), item, wanted)
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.error(name, "must be a list of strings")
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise SpecError(pointer_to(self.at(name), i), item, "must be a string")
        return tuple(value)

    def objects(self, name: str) -> "tuple[Fields, ...]":
        """A list of objects; absent is an error."""
        value = self.value(name)
        if not isinstance(value, (list, tuple)):
            raise self.error(name, "must be a list of objects")
        return tuple(Fields(item, pointer_to(self.at(name), i)) for i, item in enumerate(value))

    def sub(self, name: str, defaults: Mapping[str, object] | None = None) -> "Fields":
        """A nested object; null and absence are an empty one."""
        value = self.value(name)
        return Fields({} if value is None else value, self.at(name), defaults)
