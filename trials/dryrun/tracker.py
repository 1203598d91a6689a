"""Bytes of all live storages, by device and by what they are for.

A dispatch mode sees every operation. Each new storage is counted, rounded as the CUDA caching
allocator rounds small sizes, and taken off when its last tensor dies.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trials.dryrun.memo import MISS, Memo, viewed

ROUNDING = 512
"""Bytes to whose multiples the CUDA caching allocator rounds (c10/cuda, kMinBlockSize)."""

DEVICE = torch.ops.prim.device.default
"""How C++ asks a fake tensor where it is: half of all calls that a mode sees."""


@dataclass
class Block:
    """One live storage."""

    device: str
    n_bytes: int
    category: str
    reference: Any


@dataclass
class Snapshot:
    """What was alive at the peak of a phase."""

    total: int = 0
    categories: dict[str, int] = field(default_factory=dict)


class LiveBytes(TorchDispatchMode):
    """Counts live storages. Use as a context, inside the fake mode."""

    def __init__(self, classify: Callable[[Tensor, str], str]):
        super().__init__()
        self.blocks: dict[int, Block] = {}
        self.now: dict[str, int] = defaultdict(int)
        self.by_category: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.peaks: dict[str, dict[str, Snapshot]] = defaultdict(dict)
        """By device, then phase."""
        self.phase = "init/none/0"
        self.category = "working"
        self.classify = classify
        self.memo = Memo()
        self.integer = 0
        """What `.item()` of an integer tensor gives; set where the engine reads a size so."""
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> "LiveBytes":
        original = self._resize

        def resize(storage: torch.UntypedStorage, n_bytes: int) -> Any:
            self._resized(storage, n_bytes)
            return original(storage, n_bytes)

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is DEVICE:
            return args[0].device
        key = self.memo.key(func, args, kwargs)
        if key is not None:
            out = self.memo.known(key, args)
            if out is MISS:
                out = viewed(func, args, kwargs or {})
            if out is not MISS:
                self._see_output(out)
                return out
        canned = _canned(func, args, self.integer)
        if canned is not None:
            return canned[0]
        if (
            func is torch.ops.aten._to_copy.default
            and getattr(args[0], "constant", None) is not None
        ):
            args[0].constant = None  # a copy that leaves the host has no value to carry along
        out = func(*args, **(kwargs or {}))
        self._see_output(out)
        if key is not None:
            self.memo.learn(key, func, args, out)
        return out

    def _see_output(self, out: Any) -> None:
        if isinstance(out, Tensor):
            self.add(out)
        elif out is not None:
            for leaf in tree_leaves(out):
                if isinstance(leaf, Tensor):
                    self.add(leaf)

    def add(self, tensor: Tensor, category: str | None = None) -> None:
        """Counts the storage of a tensor, unless it is counted already."""
        device = tensor.device.type
        if device == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.blocks:
            return
        size = _rounded(storage.nbytes())
        name = category or self.classify(tensor, self.category)

        def dead(_: Any, key: int = key) -> None:
            block = self.blocks.pop(key, None)
            if block is not None:
                self._count(block, -block.n_bytes)

        block = Block(device, size, name, weakref.ref(storage, dead))
        self.blocks[key] = block
        self._count(block, size)

    def tag(self, tensors: Iterable[Tensor], category: str) -> None:
        """Says what the storages of these tensors are for."""
        for tensor in tensors:
            if tensor.device.type == "meta":
                continue
            self.add(tensor, category)
            block = self.blocks[tensor.untyped_storage()._cdata]
            if block.category != category:
                self.by_category[block.device][block.category] -= block.n_bytes
                self.by_category[block.device][category] += block.n_bytes
                block.category = category

    @contextmanager
    def allocating(self, category: str) -> Iterator[None]:
        """New storages are of this category, unless their shape says otherwise."""
        before, self.category = self.category, category
        try:
            yield
        finally:
            self.category = before

    def enter(self, phase: str) -> None:
        """Begins a phase; its peak starts from what is alive."""
        self.phase = phase
        for device in list(self.now):
            self._see(device)

    def forget(self, device: str) -> None:
        """Peaks of a device until now do not count; the phase goes on from what is alive."""
        self.peaks[device].clear()
        self.enter(self.phase)

    def _count(self, block: Block, change: int) -> None:
        self.now[block.device] += change
        self.by_category[block.device][block.category] += change
        if change > 0:
            self._see(block.device)

    def _see(self, device: str) -> None:
        peak = self.peaks[device].get(self.phase)
        if peak is None:
            peak = self.peaks[device][self.phase] = Snapshot()
        if self.now[device] > peak.total:
            peak.total = self.now[device]
            peak.categories = dict(self.by_category[device])

    def _resized(self, storage: torch.UntypedStorage, n_bytes: int) -> None:
        block = self.blocks.get(storage._cdata)
        if block is not None:
            change = _rounded(n_bytes) - block.n_bytes
            block.n_bytes += change
            self._count(block, change)


def _rounded(n_bytes: int) -> int:
    return -(-n_bytes // ROUNDING) * ROUNDING


def _canned(func: Any, args: Any, integer: int) -> tuple[Any] | None:
    """A value for operations whose result depends on data, which fake tensors do not have."""
    if func is torch.ops.aten._local_scalar_dense.default:
        dtype = args[0].dtype
        if dtype is torch.bool:
            return (False,)
        return (1.0 if dtype.is_floating_point else integer,)
    if func is torch.ops.aten.equal.default:
        return (True,)
    return None
