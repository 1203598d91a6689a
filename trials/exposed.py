"""Communication that nothing hides: waits on a processor, profiled kernels on a GPU."""

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

Interval = tuple[float, float]
"""Start and end, in any one unit."""

NCCL_KINDS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "SendRecv": "p2p",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
"""How NCCL names its kernels; an all-to-all is made of sends and receives, as p2p is."""
_NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")


class TimedWork:
    """The handle of a collective that was started without waiting: its wait is exposed time."""

    def __init__(self, work: Any, add_seconds: Callable[[float], None]):
        self._work, self._add_seconds = work, add_seconds

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Waits, and books how long that took."""
        began = time.perf_counter()
        try:
            return self._work.wait(*args, **kwargs)
        finally:
            self._add_seconds(time.perf_counter() - began)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def watched(work: Any, add_seconds: Callable[[float], None]) -> Any:
    """A handle, or a list of them, whose waits are booked; anything else unchanged."""
    if isinstance(work, list):
        return [watched(one, add_seconds) for one in work]
    return TimedWork(work, add_seconds) if hasattr(work, "wait") else work


def exposed_seconds(
    communication: Iterable[tuple[str, Interval]], compute: Iterable[Interval]
) -> dict[str, float]:
    """By kind, the time in which a collective runs and no kernel that computes.

    Where two collectives run at once, the time is booked once, to the one that began first.
    """
    covered = _union(compute)
    found: dict[str, float] = {}
    for kind, interval in sorted(communication, key=lambda one: one[1]):
        bare = _length([interval]) - _overlap(interval, covered)
        found[kind] = found.get(kind, 0.0) + bare
        covered = _union([*covered, interval])
    return found


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def _overlap(interval: Interval, covered: list[Interval]) -> float:
    start, end = interval
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in covered)


def nccl_kind(kernel: str) -> str | None:
    """The kind of an NCCL kernel's traffic; None for a kernel that computes."""
    found = _NCCL.match(kernel)
    return None if found is None else NCCL_KINDS.get(found[1], "other")


def profiled(step: Callable[[], object]) -> dict[str, float]:
    """Exposed seconds of one step on this rank's GPU, from the kernels that its profiler saw."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
    communication: list[tuple[str, Interval]] = []
    compute: list[Interval] = []
    for event in profiler.events() or ():
        if event.device_type is not DeviceType.CUDA:
            continue
        span = (event.time_range.start / 1e6, event.time_range.end / 1e6)
        kind = nccl_kind(event.name)
        if kind is None:
            compute.append(span)
        else:
            communication.append((kind, span))
    return exposed_seconds(communication, compute)
