"""What the engine needs to run on fake tensors: the few calls that look at values or peers."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh as init_device_mesh_of
from torch.testing._internal.distributed.fake_pg import FakeStore

from trials.dryrun import device
from trials.dryrun.compiler import skip_the_compiler
from trials.dryrun.partitions import look_at_own_parts


def join_fake_world(world_size: int, rank: int, gpu_bytes: int) -> Any:
    """A process group of `world_size` ranks of which only this one exists.

    Returns the accelerator. Collectives return at once; what they allocate is what their callers
    allocate. Once in a process.
    """
    os.environ.update(
        DS_ACCELERATOR="cpu",
        RANK=str(rank),
        LOCAL_RANK="0",
        WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="1",
    )
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
    device.register()
    skip_the_compiler()
    import deepspeed
    from deepspeed.accelerator import real_accelerator

    from trials.dryrun.accelerator import FakeGpu

    accelerator = FakeGpu(gpu_bytes)
    real_accelerator.set_accelerator(accelerator)
    deepspeed.ops.__compatible_ops__ = {}  # else it probes compilers for shared-memory collectives
    dist.init_process_group(
        f"cpu:fake,{device.NAME}:fake", store=FakeStore(), rank=rank, world_size=world_size
    )
    deepspeed.init_distributed(dist_backend="fake", verbose=False)
    _replace_compiled_operations()
    _skip_comparisons_between_ranks()
    look_at_own_parts()
    _make_meshes_of_real_tensors()
    return accelerator


def _replace_compiled_operations() -> None:
    """Modules of DeepSpeed hold op builders that they imported before the accelerator was set."""
    from trials.dryrun.kernels import BUILDERS

    for name, module in list(sys.modules.items()):
        if name.startswith("deepspeed."):
            for builder, replacement in BUILDERS.items():
                if builder in vars(module):
                    setattr(module, builder, replacement)


def _skip_comparisons_between_ranks() -> None:
    """ZeRO-3 checks that all ranks have the same shapes; here there is one rank."""
    for name in ("partitioned_param_coordinator", "utils", "stage3", "partition_parameters"):
        module = importlib.import_module(f"deepspeed.runtime.zero.{name}")
        for check in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
            if hasattr(module, check):
                setattr(module, check, lambda *_, **__: None)


def _make_meshes_of_real_tensors() -> None:
    """A device mesh reads its ranks from a tensor, which must have values."""
    backend = importlib.import_module("deepspeed.comm.torch").TorchBackend

    def init_device_mesh(self: Any, shape: Any, names: Any) -> Any:
        with unset_fake_temporarily():
            return init_device_mesh_of("cpu", shape, mesh_dim_names=names)

    backend.init_device_mesh = init_device_mesh


def when_cut(then: Callable[[], None]) -> None:
    """Calls `then` as the engine has cut a model (AutoTP) and makes its optimizer.

    On a real machine the whole model is in host memory until then, and only the cut one goes to
    the GPU; here it was made where it will be.
    """
    engine = importlib.import_module("deepspeed.runtime.engine").DeepSpeedEngine
    original = engine._configure_optimizer

    def configured(self: Any, *args: Any, **kwargs: Any) -> Any:
        then()
        return original(self, *args, **kwargs)

    engine._configure_optimizer = configured


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Tensors made inside have shapes and devices, and no bytes."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        mode.cache_enabled = False  # the tracker has its own
        yield mode


def keep_in_place(model: torch.nn.Module | type[torch.nn.Module]) -> None:
    """Moves and casts of the whole model do nothing: it is made where and as the engine wants it.

    `Module.to` swaps tensor implementations, which fake tensors refuse.
    """
    for name in ("to", "bfloat16", "half", "float", "cpu"):
        if isinstance(model, type):
            setattr(model, name, lambda self, *_, **__: self)
        else:
            setattr(model, name, lambda *_, **__: model)
