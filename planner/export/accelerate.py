"""The Accelerate config: it points at the ds_config and repeats nothing of it."""

import json
from typing import Any

import yaml

from cost_model.plans import Software
from planner.export.ds_config import ds_config
from planner.export.result import Exported, Planned

CONFIG = "accelerate_config.yaml"


def accelerate_config(planned: Planned) -> dict[str, Any]:
    """One source of truth: with deepspeed_config_file no plugin field may be given.

    The launcher between nodes is `standard` (torchrun's), which Slurm and Kubernetes start too.
    mixed_precision is left out: Accelerate refuses it beside the file, which says it.
    """
    planned.only("accelerate", Software.DEEPSPEED)
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {
            "deepspeed_config_file": "ds_config.json",
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": planned.plan.zero_stage == 3,
        },
        "num_machines": planned.nodes,
        "num_processes": planned.plan.world_size,
        "machine_rank": 0,
        "main_process_ip": planned.hosts[0],
        "main_process_port": planned.options.master_port,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }


def accelerate(planned: Planned) -> Exported:
    """accelerate_config.yaml and the ds_config that it names."""
    config = accelerate_config(planned)
    plain = ds_config(planned.model, planned.cluster, planned.training, planned.plan)
    return Exported(
        CONFIG,
        {
            CONFIG: "".join(f"# {note}\n" for note in planned.trainer_notes)
            + yaml.safe_dump(config, sort_keys=False),
            "ds_config.json": json.dumps(plain, indent=2) + "\n",
        },
        planned.trainer_notes,
    )
