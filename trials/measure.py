"""What a worker measures besides the clock: collectives, memory, bandwidth."""

import importlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trials.exposed import watched
from trials.parallel.mesh import Axis, Mesh
from trials.result import CollectiveMeasurement, MemoryMeasurement

KINDS = {
    "all_reduce": "all_reduce",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "p2p",
    "recv": "p2p",
    "batch_isend_irecv": "p2p",
}
"""Functions of torch.distributed by the kind of their traffic."""


class CollectiveClock:
    """Times what this process waits for in collectives, by kind.

    That is calls that block and waits for those that were started without. On a CPU it is the
    exposed time. On a GPU a call returns before its work is done: see `trials.exposed.profiled`.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.n_bytes: dict[str, int] = defaultdict(int)
        self._originals: dict[str, Callable[..., Any]] = {}
        self._undo: list[Callable[[], None]] = []
        self._depth = 0

    def __enter__(self) -> "CollectiveClock":
        for name, kind in KINDS.items():
            original = getattr(dist, name, None)
            if original is not None:
                self._originals[name] = original
                setattr(dist, name, self._timed(original, kind))
        self._watch_engine()
        return self

    def _watch_engine(self) -> None:
        """DeepSpeed's backend holds two of the functions as attributes since it was made."""
        backend: Any = importlib.import_module("deepspeed.comm.comm").cdb
        for name, kind in (
            ("all_gather_function", "all_gather"),
            ("reduce_scatter_function", "reduce_scatter"),
        ):
            original = getattr(backend, name, None)
            if original is not None:
                setattr(backend, name, self._timed(original, kind))
                self._undo.append(partial(setattr, backend, name, original))

    def __exit__(self, *error: object) -> None:
        for name, original in self._originals.items():
            setattr(dist, name, original)
        for undo in self._undo:
            undo()

    def _timed(self, original: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return original(*args, **kwargs)
            self._depth += 1
            began = time.perf_counter()
            try:
                work = original(*args, **kwargs)
            finally:
                self._depth -= 1
                add_seconds(time.perf_counter() - began)
                self.n_bytes[kind] += _payload(args, kwargs)
            return watched(work, add_seconds)

        def add_seconds(seconds: float) -> None:
            self.seconds[kind] += seconds

        return call

    def take(self) -> tuple[dict[str, float], dict[str, int]]:
        """Seconds and bytes since the last call."""
        seconds, n_bytes = dict(self.seconds), dict(self.n_bytes)
        self.seconds.clear()
        self.n_bytes.clear()
        return seconds, n_bytes


def _payload(args: Any, kwargs: Any) -> int:
    """Bytes of the larger side of a call; of a batch of sends and receives, what is sent."""
    values = (*args, *kwargs.values())
    sizes = [v.numel() * v.element_size() for v in values if isinstance(v, Tensor)]
    for value in values:
        for one in value if isinstance(value, list) else ():
            if isinstance(one, dist.P2POp) and one.op is dist.isend:
                sizes.append(one.tensor.numel() * one.tensor.element_size())
    return max(sizes, default=0)


class MemoryClock:
    """Peaks of one device by phase."""

    def __init__(self, device: torch.device):
        self.device = device
        self.phase = "init"
        self._peaks: dict[str, tuple[int, int, int]] = {}

    def enter(self, phase: str) -> None:
        """Books what was used until now under the current phase, then begins another."""
        allocated = reserved = 0
        if self.device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(self.device)
            reserved = torch.cuda.max_memory_reserved(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        old = self._peaks.get(self.phase, (0, 0, 0))
        now = (allocated, reserved, resident_bytes())
        self._peaks[self.phase] = (
            max(old[0], now[0]),
            max(old[1], now[1]),
            max(old[2], now[2]),
        )
        self.phase = phase

    def report(self) -> tuple[MemoryMeasurement, ...]:
        """Peaks of all phases seen."""
        self.enter(self.phase)
        return tuple(
            MemoryMeasurement(phase=phase, allocated=a, reserved=r, host=h)
            for phase, (a, r, h) in self._peaks.items()
        )


def resident_bytes() -> int:
    """Resident set of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SWEEP_BYTES = (2**14, 2**17, 2**20, 2**23)
"""Payloads of the sweep: from where latency rules to where bandwidth does."""
REPEATS = 5


def sweep(mesh: Mesh, device: torch.device, ep: int = 1) -> tuple[CollectiveMeasurement, ...]:
    """Times the collectives that training uses, on the plan's own groups.

    ep: expert-parallel degree; its groups are those that the engine made for the experts.
    """
    found = []
    axes: dict[str, Axis] = {n: getattr(mesh, n) for n in ("tp", "sp", "cp", "dp", "pp", "zero")}
    if ep > 1:
        axes["ep"] = _expert_axis(ep)
    for name, axis in axes.items():
        if axis.size == 1 or (name == "zero" and axis.size == mesh.dp.size):
            continue
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"):
            for n_bytes in SWEEP_BYTES:
                seconds = _time_one(kind, axis, n_bytes, device)
                found.append(
                    CollectiveMeasurement(
                        axis=name, ranks=axis.size, kind=kind, n_bytes=n_bytes, seconds=seconds
                    )
                )
    return tuple(found)


def _expert_axis(ep: int) -> Axis:
    """The ranks between which this rank's tokens find their experts."""
    groups: Any = importlib.import_module("deepspeed.utils.groups")
    group = groups._get_expert_parallel_group(f"ep_size_{ep}")
    ranks = tuple(dist.get_process_group_ranks(group))
    return Axis(size=ep, rank=ranks.index(dist.get_rank()), group=group, ranks=ranks)


def _time_one(kind: str, axis: Axis, n_bytes: int, device: torch.device) -> float:
    """Median seconds of one collective of n_bytes a rank."""
    numbers = n_bytes // 4 // axis.size * axis.size
    whole = torch.zeros(numbers, device=device)
    part = torch.zeros(numbers // axis.size, device=device)
    other = torch.empty_like(whole)
    peer = axis.ranks[axis.rank ^ 1] if (axis.rank ^ 1) < axis.size else None

    def exchange() -> None:
        if peer is None:
            return
        ops = [
            dist.P2POp(dist.isend, whole, peer, axis.group),
            dist.P2POp(dist.irecv, other, peer, axis.group),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=axis.group),
        "all_gather": lambda: dist.all_gather_single(whole, part, group=axis.group),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, group=axis.group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=axis.group),
        "p2p": exchange,
    }
    times = []
    for _ in range(REPEATS + 1):
        dist.barrier(group=axis.group)
        began = time.perf_counter()
        calls[kind]()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[REPEATS // 2]
