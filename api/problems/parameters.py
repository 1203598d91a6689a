"""The error of a query parameter."""

from planner.errors import RequestError


class ParameterError(RequestError):
    """A query parameter that cannot be used; its problems name parameters, not fields."""
