"""PyTorch's caching allocator in miniature, to hold predicted reserved bytes against.

Rules of c10/cuda/CUDACachingAllocator.cpp with its defaults: sizes are rounded to 512 bytes; up to
1 MiB come from segments of 2 MiB, up to 10 MiB from such of 20, larger ones from their own, rounded
to 2 MiB; the smallest free block that is large enough serves, and is split where enough is left;
freed blocks join their free neighbours, and no segment is ever given back.
"""

import bisect
from dataclasses import dataclass

MIB = 2**20


@dataclass
class Block:
    """A piece of a segment."""

    size: int
    used: bool
    before: int | None
    """Where the piece before it begins."""


class CachingAllocator:
    """Hands out blocks by number."""

    def __init__(self) -> None:
        self.reserved = 0
        self.allocated = 0
        self.peak = 0
        """The most that was ever handed out at once."""
        self._free: tuple[list[tuple[int, int, int]], ...] = ([], [])
        self._segments: list[dict[int, Block]] = []
        self._handed: dict[int, tuple[int, int, int]] = {}

    def take(self, size: float) -> int:
        """A block of at least `size` bytes."""
        wanted = max(512, -(-int(size) // 512) * 512)
        pool = int(wanted > MIB)
        place = bisect.bisect_left(self._free[pool], (wanted, -1, -1))
        if place < len(self._free[pool]):
            _, segment, at = self._free[pool].pop(place)
        else:
            segment, at = self._new_segment(wanted, pool), 0
        blocks = self._segments[segment]
        block = blocks[at]
        left = block.size - wanted
        if left >= 512 if pool == 0 else left > MIB:
            blocks[at + wanted] = Block(left, False, at)
            if at + block.size in blocks:
                blocks[at + block.size].before = at + wanted
            block.size = wanted
            bisect.insort(self._free[pool], (left, segment, at + wanted))
        block.used = True
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)
        number = len(self._handed)
        self._handed[number] = (pool, segment, at)
        return number

    def give_back(self, number: int) -> None:
        """Frees a block."""
        pool, segment, at = self._handed[number]
        blocks, free = self._segments[segment], self._free[pool]
        block = blocks[at]
        block.used = False
        self.allocated -= block.size
        after = blocks.get(at + block.size)
        if after is not None and not after.used:
            free.remove((after.size, segment, at + block.size))
            del blocks[at + block.size]
            block.size += after.size
        if block.before is not None and not blocks[block.before].used:
            before = blocks[block.before]
            free.remove((before.size, segment, block.before))
            before.size += block.size
            del blocks[at]
            at, block = block.before, before
        if at + block.size in blocks:
            blocks[at + block.size].before = at
        bisect.insort(free, (block.size, segment, at))

    def _new_segment(self, size: int, pool: int) -> int:
        unit = 2 * MIB
        whole = unit if pool == 0 else 20 * MIB if size < 10 * MIB else -(-size // unit) * unit
        self._segments.append({0: Block(whole, False, None)})
        self.reserved += whole
        return len(self._segments) - 1
