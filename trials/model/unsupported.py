"""The error of a geometry that the trial model does not cover."""


class UnsupportedModel(ValueError):  # noqa: N818
    """A model that trials cannot build; the message says which part."""
