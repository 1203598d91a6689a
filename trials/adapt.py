"""What an exported config needs to run on this machine with the trial model; each with its note."""

import copy
from typing import Any

from cost_model.plans import Offload, Plan, Software

ROW = (r".*\.o_proj\.weight$", r".*\.down_proj\.weight$")
COLUMN = (
    r".*\.[qkv]_proj\.weight$",
    r".*\.(gate|up)_proj\.weight$",
    r".*\.(q|kv)_b_proj\.weight$",
)


def adapted(config: dict[str, Any], plan: Plan, *, cpu: bool) -> tuple[dict[str, Any], list[str]]:
    """The config to hand to the engine, and what was changed.

    The exported config itself is never written to.
    """
    made = copy.deepcopy(config)
    notes = []
    made.setdefault("steps_per_print", 10**9)
    if plan.software is Software.DEEPSPEED and plan.tp > 1:
        # AutoTP knows transformers' classes by name; of this model it has to be told.
        made["tensor_parallel"]["partition_config"] = {
            "use_default_specs": False,
            "layer_specs": [
                {"patterns": list(ROW), "partition_type": "row"},
                {"patterns": list(COLUMN), "partition_type": "column"},
            ],
        }
        notes.append("tensor_parallel.partition_config names this model's matrices")
    optimizer = made.get("optimizer")
    partly = plan.offload_optimizer is Offload.CPU and plan.offload_ratio < 1
    if cpu and not partly and optimizer and optimizer["type"].lower() in ("adam", "adamw"):
        # The compiled Adam would be built on first use, for a minute. Where only a part of the
        # states is offloaded the engine takes no other (runtime/zero/stage3.py:316).
        optimizer.setdefault("params", {})["torch_adam"] = True
        notes.append("optimizer.params.torch_adam: PyTorch's Adam on a CPU")
    if not optimizer and cpu and plan.offload_optimizer is not Offload.NONE:
        # Megatron brings DeepSpeed's compiled Adam (--cpu-optimizer); the trial brings PyTorch's,
        # which the engine takes only when told so (runtime/engine.py:2344).
        made["zero_force_ds_cpu_optimizer"] = False
        notes.append("zero_force_ds_cpu_optimizer: PyTorch's Adam on offloaded states")
    return made, notes
