"""Sets of coefficients as keys of caches: a set is frozen, and large to hash by its values."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """A frozen object as a key: equal to itself alone."""

    __slots__ = ("known",)

    def __init__(self, known: T):
        self.known = known

    def __hash__(self) -> int:
        return id(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.known is self.known
