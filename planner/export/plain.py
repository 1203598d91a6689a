"""The plain ds_config as an export of its own."""

import json

from cost_model.plans import Software
from planner.export.ds_config import ds_config
from planner.export.result import Exported, Planned


def plain(planned: Planned) -> Exported:
    """ds_config.json, every value concrete."""
    planned.only(
        "ds_config", Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED
    )
    config = ds_config(planned.model, planned.cluster, planned.training, planned.plan)
    return Exported("ds_config.json", {"ds_config.json": json.dumps(config, indent=2) + "\n"})
