"""Finds the routers of a model and reads what they decided, whoever wrote them.

Known are DeepSpeed's gate, the routers of transformers (which says itself which of their outputs
are logits), and any module named `gate`, `router` or `wg` that returns logits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NAMES = ("gate", "router", "wg")
"""What a router is called where nothing else tells."""


@dataclass(frozen=True)
class Routing:
    """One pass of one router."""

    shares: Tensor
    """Probability of each expert, fp32 [tokens, experts], with its gradient."""
    index: Tensor
    """Chosen experts [tokens, k]; -1 where a capacity dropped the route."""
    demand: Tensor | None = None
    """Routes to each expert before any was dropped [experts]; None where none can be."""


Reader = Callable[[nn.Module, tuple[Any, ...], Any], Routing]
"""(router, its positional arguments, its output) to what it decided."""


def find_routers(
    model: nn.Module, own: Mapping[type[nn.Module], Reader] | None = None
) -> dict[str, tuple[nn.Module, Reader]]:
    """Routers of a model by name. `own` reads routers of the user's own classes.

    Raises ValueError where there is none.
    """
    recorded = _recorded(model)
    found: dict[str, tuple[nn.Module, Reader]] = {}
    for name, module in model.named_modules():
        reader = _reader(name, module, own or {}, recorded)
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if reader is not None and not inside:
            found[name] = (module, reader)
    if not found:
        names = ", ".join(NAMES)
        raise ValueError(f"the model has no router (a module named {names}); give its class")
    return found


def _reader(
    name: str,
    module: nn.Module,
    own: Mapping[type[nn.Module], Reader],
    recorded: Mapping[type[nn.Module], int],
) -> Reader | None:
    kind = type(module)
    if kind in own:
        return own[kind]
    if kind.__name__ == "TopKGate" and isinstance(getattr(module, "wg", None), nn.Module):
        return read_deepspeed
    if kind in recorded:
        return reads_output(recorded[kind])
    leaf = name.rsplit(".", 1)[-1]
    weight = getattr(module, "weight", None)
    # Under ZeRO 3 a parameter that is not gathered keeps its shape apart.
    shape: tuple[int, ...] = tuple(getattr(weight, "ds_shape", getattr(weight, "shape", ())))
    scores_experts = len(shape) == 2 and shape[0] > 1
    return reads_output(0) if leaf in NAMES and scores_experts else None


def _recorded(model: nn.Module) -> dict[type[nn.Module], int]:
    """Router classes that a transformers model declares, and which output their logits are."""
    found: dict[type[nn.Module], int] = {}
    for module in model.modules():
        declared = getattr(module, "_can_record_outputs", None)
        recorder = declared.get("router_logits") if isinstance(declared, Mapping) else None
        for one in recorder if isinstance(recorder, list | tuple) else (recorder,):
            target = getattr(one, "target_class", None)
            if isinstance(target, type):
                found[target] = int(getattr(one, "index", 0))
    return found


def read_deepspeed(router: nn.Module, args: tuple[Any, ...], output: Any) -> Routing:
    """DeepSpeed's gate, whose logits never leave it: they are computed again, in fp32 as there.

    It multiplies by its matrix without calling the module that holds it (moe/sharded_moe.py,
    TopKGate.forward), so a hook on `wg` would never run.
    """
    weight = router.wg.weight  # type: ignore[union-attr]
    logits = functional.linear(args[0].float(), weight.float())  # type: ignore[arg-type]
    indices, counts = output[3], output[-1]
    return Routing(logits.softmax(-1), indices.t().long(), counts)


def reads_output(place: int) -> Reader:
    """A reader of routers whose logits are that one of their outputs."""

    def read(router: nn.Module, args: tuple[Any, ...], output: Any) -> Routing:
        parts = output if isinstance(output, tuple) else (output,)
        logits = parts[place].flatten(0, -2)
        shares = scores(router, logits)
        chosen = [p for p in parts if isinstance(p, Tensor) and not p.is_floating_point()]
        if chosen:
            return Routing(shares, chosen[0].reshape(shares.shape[0], -1))
        k = int(getattr(router, "top_k", 1))
        return Routing(shares, shares.topk(k, dim=-1).indices)

    return read


def scores(router: nn.Module, logits: Tensor) -> Tensor:
    """Shares of experts [tokens, experts]: a softmax, or sigmoids made to sum to one.

    The latter where the router corrects its choice by a bias (DeepSeek-V3, arXiv 2412.19437,
    section 2.1.2).
    """
    wide = logits.float()
    if hasattr(router, "e_score_correction_bias"):
        open_gates = torch.sigmoid(wide)
        return open_gates / open_gates.sum(-1, keepdim=True).clamp_min(1e-20)
    return wide.softmax(-1)
