"""Free-form cases become claims; the cases here are made up after the kinds that people report."""

from typing import Any

import pytest

from cost_model.plans import Offload, Recompute, Software
from tests.benchmarks.cases.claims import claims_of
from tests.benchmarks.cases.judge import judge
from tests.benchmarks.rows.assumptions import Skip

SEVEN_B = {
    "params_b": 6.74,
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 32,
    "ffn": 11008,
    "vocab": 32000,
}


def case(**changes: Any) -> dict[str, Any]:
    return {
        "id": "made-up",
        "kind": "planner",
        "model": "LLaMA-7B",
        "geometry": SEVEN_B,
        "cluster": {"gpus": 1, "gpu": "A100-80GB"},
        "config": {"zero": 0, "seq": 512},
        "observed": {"outcome": "oom_gpu"},
    } | changes


def test_full_training_of_seven_billion_does_not_fit_one_gpu() -> None:
    # 6.74e9 parameters x 16 bytes = 108 GB of states (arXiv 1910.02054, section 3.1).
    assert judge(case()).right


def test_qlora_of_seven_billion_fits_one_small_gpu() -> None:
    found = case(
        cluster={"gpus": 1, "gpu": "RTX3090-24GB"},
        config={"method": "qlora", "seq": 512, "act_ckpt": True},
        observed={"outcome": "fits"},
    )
    assert judge(found).right


def test_each_gpu_count_and_stage_is_a_claim() -> None:
    found = case(cluster={"gpus": [2, 4], "gpu": "A100-40GB"}, config={"zero": [2, 3]})
    assert len(claims_of(found)) == 4


def test_offload_goes_where_the_config_says() -> None:
    found = case(config={"zero": 3, "offload_optimizer": "cpu", "offload_param": "nvme"})
    plan = claims_of(found)[0].ask().plan
    assert (plan.offload_optimizer, plan.offload_param) == (Offload.CPU, Offload.NVME)
    plan = claims_of(case(config={"zero": "2-offload"}))[0].ask().plan
    assert (plan.zero_stage, plan.offload_optimizer) == (2, Offload.CPU)


def test_software_follows_from_the_config() -> None:
    fsdp = claims_of(case(config={"fsdp": "full_shard"}))[0].ask().plan
    megatron = claims_of(case(cluster={"gpus": 8, "gpu": "A100-80GB"}, config={"tp": 2, "pp": 2}))[
        0
    ].ask()
    assert (fsdp.software, fsdp.zero_stage) == (Software.FSDP, 3)
    assert (megatron.plan.software, megatron.plan.dp) == (Software.MEGATRON, 2)


def test_plain_hugging_face_does_not_checkpoint_and_llama_factory_does() -> None:
    plain = claims_of(case())[0].ask().plan
    factory = claims_of(case(source="github.com/hiyouga/LLaMA-Factory"))[0].ask().plan
    assert plain.recompute is Recompute.NONE
    assert factory.recompute is Recompute.FULL


def test_rows_of_a_table_are_claims_of_their_own() -> None:
    rows = [{"mode": "zero2", "outcome": "oom_gpu"}, {"mode": "zero3", "step_s": 2.9}]
    found = case(
        cluster={"gpus": 8, "gpu": "A100-40GB"},
        config={"seq": 512, "rows": rows},
        observed={"outcome": "mixed"},
    )
    assert [c.outcome for c in claims_of(found)] == ["oom_gpu", "fits"]


def test_a_table_by_method_and_size_names_its_models() -> None:
    found = case(
        model="Qwen-1.8B/7B",
        geometry={},
        config={"seq": 512},
        observed={"outcome": "mixed", "lora": {"1.8B": 7.4, "7B": 20.3, "72B": "OOM"}},
    )
    claims = claims_of(found)
    assert [c.outcome for c in claims] == ["fits", "fits", "oom_gpu"]
    assert claims[1].ask().model.hidden == 4096


def test_a_parameter_count_is_checked_against_the_geometry() -> None:
    found = case(observed={"outcome": "wrong estimate", "true_b": 6.738}, config={}, cluster={})
    assert judge(found).right


def test_two_nodes_on_slow_ethernet_are_slower_than_one() -> None:
    found = case(
        cluster={"gpus": 4, "nodes": 2, "gpu": "A10-24GB", "inter": "10Gb/s Ethernet"},
        config={"zero": 3, "seq": 512},
        observed={"outcome": "slow"},
    )
    assert judge(found).right


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": {}},
        {"observed": {"outcome": "confused"}},
        {"model": "something", "geometry": {}},
    ],
)
def test_a_case_that_states_too_little_is_left_out(changes: dict[str, Any]) -> None:
    found = case(**changes)
    try:
        claims = claims_of(found)
    except Skip:
        return
    with pytest.raises(Skip):
        claims[0].ask()
