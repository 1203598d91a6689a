"""The user's own model in place of the trial model, named in the worker's own configuration.

`MESHWRIGHT_USER_MODEL=module:callable` in the worker's environment, or `user_model` in the TOML
file that `MESHWRIGHT_WORKER_CONFIG` names, which may also list folders to import from as `path`.
A trial file cannot name one: whoever sends a request would choose the code that a node runs.

The contract: `callable(model: ModelSpec, training: TrainingSpec) -> torch.nn.Module`, whose
`forward(ids, labels)` takes two int64 tensors [micro-batch, sequence] and returns the mean loss, a
scalar that has a gradient. It is called with PyTorch's default dtype set to the precision of the
run, seeded, and under ZeRO 3 inside `deepspeed.zero.Init`.
"""

import importlib
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cost_model.plans import Plan, Recompute, Software
from cost_model.specs import ModelSpec, TrainingSpec
from trials.preflight import Refused

VARIABLE = "MESHWRIGHT_USER_MODEL"
CONFIG_VARIABLE = "MESHWRIGHT_WORKER_CONFIG"

Maker = Callable[[ModelSpec, TrainingSpec], nn.Module]


def user_model_name(environment: Mapping[str, str] | None = None) -> str | None:
    """What this worker's configuration names, `module:callable`; None where it names nothing.

    The variable comes before the file. Reads the environment and the file; raises Refused where
    the file cannot be read.
    """
    env = os.environ if environment is None else environment
    path = env.get(CONFIG_VARIABLE)
    config: dict[str, Any] = {}
    if path:
        try:
            config = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise Refused(f"{CONFIG_VARIABLE}={path} cannot be read: {error}") from error
    for folder in config.get("path", []):
        if folder not in sys.path:
            sys.path.append(folder)
    name = env.get(VARIABLE) or config.get("user_model")
    return str(name) if name else None


def load_maker(name: str) -> Maker:
    """The callable of `module:callable`. Raises Refused where there is none."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Refused(f"{VARIABLE} must be 'module:callable'; got {name!r}")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise Refused(f"{VARIABLE}={name}: importing {module_name} failed: {error!r}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Refused(f"{VARIABLE}={name}: {module_name} has no {attribute}")
        found = getattr(found, part)
    if not callable(found):
        raise Refused(f"{VARIABLE}={name} is a {type(found).__name__}, not callable")
    maker: Maker = found
    return maker


def check_plan(plan: Plan) -> None:
    """Raises Refused for a plan that needs layers which only the trial model has."""
    for axis in ("pp", "sp", "cp", "ep"):
        if getattr(plan, axis) > 1:
            raise Refused(
                f"{axis} = {getattr(plan, axis)} cuts the trial model's own layers; the user's "
                "model runs data parallelism, ZeRO, offload and AutoTP"
            )
    if plan.software is not Software.DEEPSPEED:
        raise Refused(f"the user's model runs in software deepspeed, not {plan.software.name}")


class UserModel(nn.Module):
    """The user's module, held to the contract."""

    def __init__(self, module: nn.Module, name: str):
        super().__init__()
        self.inner = module
        self.name = name

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """ids and labels: [b, s]; raises Refused for what is no scalar loss."""
        loss = self.inner(ids, labels)
        if not isinstance(loss, Tensor):
            raise Refused(f"{self.name}: forward must return the mean loss, not {_kind(loss)}")
        if loss.dim() != 0:
            raise Refused(
                f"{self.name}: forward must return a scalar loss, not shape {list(loss.shape)}"
            )
        if self.training and torch.is_grad_enabled() and not loss.requires_grad:
            raise Refused(f"{self.name}: the loss has no gradient")
        return loss


def _kind(value: object) -> str:
    hint = "; return its .loss" if hasattr(value, "loss") else ""
    return f"{type(value).__name__}{hint}"


def build_user_model(
    name: str, model: ModelSpec, training: TrainingSpec, plan: Plan, seed: int
) -> tuple[UserModel, list[str]]:
    """The user's model and notes on what differs from the spec. Raises Refused."""
    check_plan(plan)
    maker = load_maker(name)
    torch.manual_seed(seed)
    try:
        module = maker(model, training)
    except TypeError as error:
        raise Refused(f"{name} must take (model_spec, training): {error}") from error
    if not isinstance(module, nn.Module):
        raise Refused(f"{name} must return a torch.nn.Module, not {_kind(module)}")
    count = sum(int(getattr(p, "ds_numel", p.numel())) for p in module.parameters())
    if not any(p.requires_grad for p in module.parameters()):
        raise Refused(f"{name} returned a module without parameters to train")
    notes = [f"the user's model {name} with {count} parameters"]
    if count != model.params:
        notes.append(f"the spec has {model.params} parameters: predictions are of the spec")
    if plan.recompute is not Recompute.NONE:
        enable = getattr(module, "gradient_checkpointing_enable", None)
        if enable is None:
            notes.append("the plan recomputes activations; the user's model does as it likes")
        else:
            enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return UserModel(module, name), notes
