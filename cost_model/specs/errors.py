"""The error of a description that cannot be used: where, what was given, what would do."""


class SpecError(ValueError):
    """A field of a config.json, or of another description, that cannot be used."""

    def __init__(self, pointer: str, given: object, wanted: str):
        self.pointer = pointer
        """JSON pointer (RFC 6901) of the field; empty for the whole document."""
        self.given = given
        self.wanted = wanted
        super().__init__(f"{pointer or '/'}: {wanted}; given {_short(given)}")


def _short(value: object, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
