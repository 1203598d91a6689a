"""How near a micro-batch is to the throughput that a larger one could reach. No torch here."""

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Saturation:
    """Fits the seconds of a sequence to floor + overhead / micro_batch.

    What a step pays once a micro-batch (launches, latency of collectives, half-empty kernels) is
    shared by its sequences: Amdahl's law with the micro-batch as the parallel part.
    """

    seen: dict[int, list[float]] = field(default_factory=dict)
    """Seconds of a sequence on one rank, by micro-batch."""

    def add(self, micro_batch: int, seconds: float, sequences: int) -> None:
        """A step of so many sequences on each rank, in micro-batches of that size."""
        self.seen.setdefault(micro_batch, []).append(seconds / sequences)

    def typical(self, micro_batch: int) -> float | None:
        """Median seconds of a sequence; None where the size was not seen."""
        times = self.seen.get(micro_batch)
        return median(times) if times else None

    @property
    def floor(self) -> float | None:
        """Seconds of a sequence in an endless micro-batch; None until two sizes tell it.

        Least squares over the medians; never above the fastest size seen. Times that fall faster
        than the law allows tell nothing.
        """
        if len(self.seen) < 2:
            return None
        points = [(1.0 / size, median(times)) for size, times in self.seen.items()]
        x_mean = sum(x for x, _ in points) / len(points)
        y_mean = sum(y for _, y in points) / len(points)
        spread = sum((x - x_mean) ** 2 for x, _ in points)
        slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
        fitted = y_mean - max(slope, 0.0) * x_mean
        return min(fitted, *(y for _, y in points)) if fitted > 0 else None

    def utilisation(self, micro_batch: int) -> float | None:
        """Throughput at this size over that of an endless one; None until two sizes tell it."""
        floor, here = self.floor, self.typical(micro_batch)
        return None if floor is None or not here else floor / here
