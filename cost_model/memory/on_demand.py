"""Columns that are computed when somebody reads them."""

from collections.abc import Callable, Iterator, Mapping

from cost_model.plans import Floats


class OnDemand(Mapping[str, Floats]):
    """Columns by name. A search over many plans reads totals alone and never pays for these."""

    def __init__(self, compute: Callable[[], dict[str, Floats]]):
        self._compute: Callable[[], dict[str, Floats]] | None = compute
        self._columns: dict[str, Floats] = {}

    def _all(self) -> dict[str, Floats]:
        if self._compute is not None:
            self._columns, self._compute = self._compute(), None
        return self._columns

    def __getitem__(self, name: str) -> Floats:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
