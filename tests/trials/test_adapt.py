"""What a trial changes in an exported config, and what it must leave alone."""

from typing import Any

import pytest

from tests.trials.conftest import make_trial
from trials.adapt import adapted


def config_on_cpu(**plan: Any) -> dict[str, Any]:
    trial = make_trial("adapt", **plan)
    return adapted(trial.ds_config, trial.plan, cpu=True)[0]


def test_a_part_of_the_optimizer_on_the_host_keeps_the_compiled_adam() -> None:
    # DeepSpeed: "Hybrid Optimizer Only Supports DeepSpeedCPUAdam".
    plan: dict[str, Any] = {"dp": 2, "zero_stage": 3, "offload_optimizer": "cpu"}
    assert config_on_cpu(**plan)["optimizer"]["params"]["torch_adam"] is True
    assert "torch_adam" not in config_on_cpu(**plan, offload_ratio=0.2)["optimizer"]["params"]


@pytest.mark.parametrize("offload", ["none", "cpu"])
def test_an_optimizer_beside_the_config_is_allowed_on_offloaded_states(offload: str) -> None:
    plan: dict[str, Any] = {"software": "megatron_deepspeed", "zero_stage": 1}
    made = config_on_cpu(dp=2, offload_optimizer=offload, **plan)
    assert made.get("zero_force_ds_cpu_optimizer", True) is (offload == "none")
