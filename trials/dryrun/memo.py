"""Operations on fake tensors, remembered: what comes out of known shapes is not derived twice.

A transformer repeats a few hundred operations tens of thousands of times. What an operation
returns on fake tensors depends on the shapes, strides, types and devices of its arguments and on
nothing else, so the first answer serves all later ones. PyTorch's own cache does the same with
many more checks, and costs most of a dry run.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

MISS = object()
"""No answer is known."""

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout)
_HASHABLE = frozenset((*_PLAIN, torch.memory_format))
_NEVER = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
)

# What FakeTensor's constructor sets on each tensor it makes, most of which is None.
for _name in ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo"):
    for _suffix in ("", "_vc", "_epoch"):
        setattr(FakeTensor, f"_{_name}{_suffix}", None)
FakeTensor._nested_int_memo = None  # type: ignore[attr-defined]
FakeTensor._nested_int_memo_vc = None  # type: ignore[attr-defined]
FakeTensor._nested_int_memo_epoch = None  # type: ignore[attr-defined]
for _name in ("constant", "pytype", "dispatch_keys", "real_tensor"):
    setattr(FakeTensor, _name, None)


class Memo:
    """Answers of one fake mode, by operation and arguments."""

    def __init__(self) -> None:
        self._entries: dict[Any, Any] = {}
        self._refused: dict[Any, bool] = {}
        self._mode: FakeTensorMode | None = None

    def key(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the answer depends on; None for calls that are not to be remembered."""
        parts: list[Any] = [func]
        if not _collect(parts, args):
            return None
        if kwargs:
            for name, value in kwargs.items():
                parts.append(name)
                if isinstance(value, Tensor) or not _collect(parts, (value,)):
                    return None
        return tuple(parts)

    def known(self, key: Any, args: Any) -> Any:
        """The answer to a key made from these arguments, or MISS. New tensors are new."""
        entry = self._entries.get(key)
        if entry is None:
            return MISS
        kind, recipes = entry
        if kind is None:
            return None
        if kind == "alias":
            return args[recipes]
        with torch._C._DisableTorchDispatch():
            made = [self._make(recipe, args) for recipe in recipes]
        return made[0] if kind == "one" else kind(made)

    def learn(self, key: Any, func: Any, args: Any, out: Any) -> None:
        """Remembers an answer, if it is of a kind that can be made again."""
        refused = self._refused.get(func)
        if refused is None:
            refused = self._refused[func] = any(tag in func.tags for tag in _NEVER)
        if refused:
            return
        if out is None:
            self._entries[key] = (None, None)
            return
        if isinstance(out, Tensor):
            for i, arg in enumerate(args):
                if arg is out:
                    self._entries[key] = ("alias", i)
                    return
        leaves = [out] if isinstance(out, Tensor) else out
        if not isinstance(leaves, list | tuple):
            return
        recipes = self._recipes(leaves, args)
        if recipes is not None:
            kind = "one" if isinstance(out, Tensor) else type(out)
            self._entries[key] = (kind, recipes)

    def _recipes(self, leaves: Any, args: Any) -> list[Any] | None:
        sources, others = _storages(args)
        recipes: list[Any] = []
        for leaf in leaves:
            if type(leaf) is not FakeTensor or leaf.constant is not None:
                return None
            storage = leaf.untyped_storage()
            source = sources.get(storage._cdata)
            if source is None:
                if storage._cdata in others or storage.nbytes() != _n_bytes(leaf):
                    return None
                others.add(storage._cdata)
            elif leaf is args[source]:
                return None
            self._mode = leaf.fake_mode
            base = 0 if source is None else args[source].storage_offset()
            layout = (leaf.shape, leaf.stride(), leaf.storage_offset() - base)
            recipes.append((source, layout, leaf.dtype, leaf.fake_device))
        return recipes

    def _make(self, recipe: Any, args: Any) -> Tensor:
        source, (shape, stride, offset), dtype, device = recipe
        if source is None:
            bare = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        else:
            bare = torch.empty(0, dtype=dtype, device="meta")
            whole = args[source]
            start = whole.storage_offset() + offset
            bare.set_(whole.untyped_storage(), start, shape, stride)
        return _fake(bare, device, self._mode)


def viewed(func: Any, args: Any, kwargs: Any) -> Any:
    """The answer of an operation that only looks at its first argument in another way, or MISS.

    Offsets into flat buffers are all different, so remembering does not help; the C++ kernel
    for tensors without bytes gives the answer as quickly.
    """
    if not func.is_view or type(args[0]) is not FakeTensor or args[0].constant is not None:
        return MISS
    source = args[0]
    with in_kernel_invocation_manager(source.fake_mode):
        out = func(*args, **kwargs)
    if isinstance(out, Tensor):
        return _fake(out, source._fake_device, source.fake_mode)
    return [_fake(one, source._fake_device, source.fake_mode) for one in out]


def _fake(bare: Tensor, device: torch.device, mode: FakeTensorMode | None) -> Tensor:
    """A fake tensor on a device from one without device, sharing its storage."""
    made: Any = Tensor._make_subclass(
        FakeTensor, bare, False, dispatch_device=True, device_for_backend_keys=device
    )
    made._fake_device = device
    made.fake_mode = mode
    return made


def _n_bytes(tensor: Tensor) -> int:
    """Bytes of a storage that holds this tensor and nothing else."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _storages(args: Any) -> tuple[dict[int, int], set[int]]:
    """Storages of the arguments by their place, and of those inside lists."""
    sources: dict[int, int] = {}
    others: set[int] = set()
    for i, arg in enumerate(args):
        if isinstance(arg, Tensor):
            sources.setdefault(arg.untyped_storage()._cdata, i)
        elif isinstance(arg, list | tuple):
            others |= {x.untyped_storage()._cdata for x in arg if isinstance(x, Tensor)}
    return sources, others - set(sources)


def _collect(parts: list[Any], values: Any) -> bool:
    """Appends what an answer depends on; False where something cannot be told apart."""
    append = parts.append
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None:
                return False
            append(value.shape)
            append(value.stride())
            append(value.dtype)
            append(value._fake_device)
        elif kind in _HASHABLE:
            append(kind)
            append(value)
        elif kind is list or kind is tuple:
            append(len(value))
            if not _collect(parts, value):
                return False
        else:
            return False
    return True
