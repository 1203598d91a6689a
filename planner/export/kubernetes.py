"""A Kubeflow TrainJob of the plan."""

from typing import Any

import yaml

from cost_model.plans import Software
from planner.export.environment import variables
from planner.export.example import script_arguments
from planner.export.result import Planned

WORKSPACE = "/workspace"
"""Where the image has the bundle's files."""


def train_job_object(planned: Planned) -> dict[str, Any]:
    """The object. The torch runtime sets nodes, ranks and the meeting point for torchrun.

    Arguments are a list, so no shell reads them.
    """
    program = list(script_arguments(planned))
    if planned.plan.software in (Software.MEGATRON, Software.MEGATRON_DEEPSPEED):
        command = ["bash", "-c"]
        program = [
            f"cd {WORKSPACE} && . ./megatron_args.sh && "
            'exec torchrun "$MEGATRON_PATH/pretrain_gpt.py" "${MEGATRON_ARGS[@]}"'
        ]
    else:
        command = ["torchrun"]
        program[0] = f"{WORKSPACE}/{program[0]}"
    gpus = str(planned.gpus_per_node)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": planned.options.job_name.lower().replace("_", "-").replace(".", "-"),
            "namespace": planned.options.namespace,
        },
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": planned.options.image,
                "command": command,
                "args": program,
                "numNodes": planned.nodes,
                "numProcPerNode": planned.gpus_per_node,
                "resourcesPerNode": {
                    "limits": {"nvidia.com/gpu": gpus},
                    "requests": {"nvidia.com/gpu": gpus},
                },
                "env": [{"name": v.name, "value": v.value} for v in variables(planned)],
            },
        },
    }


def train_job(planned: Planned) -> str:
    """The object as YAML."""
    head = f"# The image must hold this folder's files in {WORKSPACE}.\n"
    return head + yaml.safe_dump(train_job_object(planned), sort_keys=False)
