"""Every bad request is refused with a pointer, what was given and what would do."""

from typing import Any

import pytest

from planner.errors import RequestError
from planner.request import PlanRequest

GOOD: dict[str, Any] = {
    "model": {"preset": "llama-2-13b"},
    "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
    "training": {"seq_len": 4096, "global_batch": 256},
}

LLAMA_CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}


def _with(path: str, value: Any) -> dict[str, Any]:
    request: dict[str, Any] = {part: dict(fields) for part, fields in GOOD.items()}
    part, _, name = path.partition("/")
    if name:
        request.setdefault(part, {})[name] = value
    else:
        request[part] = value
    return request


BAD = [
    ("extra", 1, "/extra", "no field"),
    ("model/prest", "x", "/model/prest", "did you mean 'preset'"),
    ("model/preset", "llama2-13b", "/model/preset", "did you mean 'llama-2-13b'"),
    ("model", {}, "/model", "exactly one"),
    ("model", {"config": {"model_type": "mamba"}}, "/model/config", "amba"),
    ("model", {"hidden": 100, "layers": 2, "heads": 3}, "/model/geometry", "divide"),
    ("cluster/preset", "dgx-a100-80gb", "/cluster/preset", "did you mean 'dgx-a100-80g'"),
    ("cluster/nodes", 0, "/cluster/nodes", "greater than or equal to 1"),
    ("cluster", {"gpu": "a100-80g-sxm", "gpus_per_node": 0}, "/cluster/gpus_per_node", "greater"),
    ("cluster", {"gpu": "a100-80g-sxn", "gpus_per_node": 1}, "/cluster/gpu", "did you mean"),
    (
        "cluster",
        {"gpu": "a100-80g-sxm", "gpus_per_node": 8, "host_ram_gib": 100},
        "/cluster/link",
        "no link",
    ),
    ("cluster", {"nodes": 2}, "/cluster", "give a preset"),
    ("training/seq_len", 8192, "/training/seq_len", "give at most 4096"),
    ("training/seq_len", "long", "/training/seq_len", "valid integer"),
    ("cluster/nodes", 2**20, "/cluster/nodes", "at most 131072 nodes"),
    ("training/global_batch", 0, "/training/global_batch", "greater than or equal to 1"),
    ("training/precision", "fp8", "/training/precision", "'bf16', 'fp16' or 'fp32'"),
    ("training/optimizer", "OneBitAdam", "/training/optimizer", "no 1-bit optimizer"),
    ("training/sequence_length", 1, "/training/sequence_length", "no field"),
    ("search", {"fixed": {"tp": 16}}, "/search/fixed/tp", "the cluster has 1"),
    ("search", {"fixed": {"tp": 3}}, "/search/fixed/tp", "[heads-tp]"),
    ("search", {"limits": {"tq": {"max": 1}}}, "/search/limits", "'tq' cannot be limited"),
    ("search", {"limits": {"tp": {"min": 4, "max": 2}}}, "/search/limits/tp", "no value is left"),
    ("search", {"limits": {"pp": {"min": 64}}}, "/search/limits/pp", "offers 1, 2, 4, 5 or 8"),
    ("search", {"software": ["deepsped"]}, "/search/software", "must be one of"),
    ("search", {"deadline_days": 3}, "/training/tokens", "give training.tokens"),
    ("search", {"objective": "speed"}, "/search/objective", "throughput"),
]


@pytest.mark.parametrize(("path", "value", "pointer", "said"), BAD)
def test_a_bad_field_is_pointed_to(path: str, value: Any, pointer: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(_with(path, value)).resolve()
    problems = {p.pointer: p.message for p in caught.value.problems}
    assert any(p.startswith(pointer) for p in problems), problems
    assert any(said in message for message in problems.values()), problems


def test_a_batch_that_no_data_parallel_degree_divides_is_told_what_would_do() -> None:
    request = _with("training/global_batch", 7)
    request["search"] = {"allow": {"pp": False, "tp": False, "sp": False}}
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(request).resolve()
    assert caught.value.problems


def test_seven_sequences_on_a_prime_model_need_another_batch() -> None:
    """One head, one layer: only data parallelism is left, and 8 does not divide 7."""
    request = _with("training/global_batch", 7)
    request["model"] = {"hidden": 64, "layers": 1, "heads": 1, "vocab": 1001, "intermediate": 171}
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(request).resolve()
    (problem,) = caught.value.problems
    assert problem.pointer == "/training/global_batch"
    assert "give a multiple of 8, such as 8" in problem.message


def test_contradictory_limits_are_named_as_a_pair() -> None:
    request = GOOD | {"search": {"fixed": {"pp": 2, "zero_stage": 3}}}
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(request).resolve()
    assert {p.pointer for p in caught.value.problems} == {
        "/search/fixed/pp",
        "/search/fixed/zero_stage",
    }


def test_bf16_on_a_v100_is_refused_and_the_default_there_is_fp16() -> None:
    request = _with("training/precision", "bf16")
    request["cluster"] = {"preset": "dgx-1"}
    with pytest.raises(RequestError, match="no bf16 matrix unit; give fp16"):
        PlanRequest.parse(request).resolve()
    del request["training"]["precision"]
    resolved = PlanRequest.parse(request).resolve()
    assert resolved.training.precision == "fp16"
    assert resolved.training.attention == "sdpa"


def test_several_faults_are_told_at_once() -> None:
    request = _with("model/preset", "gpt-5")
    request["cluster"]["preset"] = "abacus"
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(request).resolve()
    assert [p.pointer for p in caught.value.problems] == ["/model/preset", "/cluster/preset"]


@pytest.mark.parametrize("wrap", [lambda c: c, lambda c: {"config": c}])
def test_a_config_json_is_recognised_bare_or_wrapped(wrap: Any) -> None:
    resolved = PlanRequest.parse(GOOD | {"model": wrap(LLAMA_CONFIG)}).resolve()
    assert resolved.model.hidden == 512
    assert resolved.model.layers == 4


def test_a_global_batch_in_tokens_becomes_whole_sequences() -> None:
    request = GOOD | {"training": {"seq_len": 4096, "global_batch_tokens": 4 * 2**20}}
    assert PlanRequest.parse(request).resolve().training.global_batch == 1024


def test_a_preset_cluster_takes_replaced_parts() -> None:
    cluster = {
        "preset": "dgx-a100-80g",
        "nodes": 2,
        "network": {"kind": "ethernet", "gbps_per_port": 25},
        "nvme": None,
        "host_ram_gib": 512,
    }
    resolved = PlanRequest.parse(GOOD | {"cluster": cluster}).resolve()
    assert resolved.cluster.network.gbps_per_port == 25
    assert resolved.cluster.node.nvme is None
    assert resolved.cluster.node.host_ram_gib == 512
    assert resolved.cluster.node.gpus_per_node == 8


def test_an_explicit_cluster_needs_no_preset() -> None:
    cluster = {
        "gpu": "rtx-3090",
        "gpus_per_node": 2,
        "nodes": 1,
        "link": {"kind": "pcie"},
        "host_ram_gib": 128,
        "cpu_cores": 16,
    }
    resolved = PlanRequest.parse(GOOD | {"cluster": cluster}).resolve()
    assert resolved.cluster.gpus == 2
    assert resolved.cluster.node.link.bandwidth_gb_per_s == resolved.cluster.node.pcie_gb_per_s


def test_a_request_survives_the_trip_through_json() -> None:
    search = {"fixed": {"recompute": "full", "software": "deepspeed"}, "software": ["deepspeed"]}
    request = PlanRequest.parse(GOOD | {"search": search})
    again = PlanRequest.parse(request.model_dump(mode="json", exclude_unset=True))
    assert again.resolve() == request.resolve()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("dgx-a100", "dgx-a100-80g"),
        ("dgx-a100-80", "dgx-a100-80g"),
        ("dgx-h10", "dgx-h100"),
        ("4090box", "4090-box"),
    ],
)
def test_the_nearest_name_is_one_of_the_same_beginning(given: str, meant: str) -> None:
    with pytest.raises(RequestError) as error:
        PlanRequest.parse(GOOD | {"cluster": {"preset": given}}).resolve()
    assert f"did you mean {meant!r}?" in str(error.value)


@pytest.mark.parametrize(
    ("fixed", "rule"),
    [
        ({"sp": 3, "zero_stage": 3}, "heads-sp"),
        ({"pp": 2, "zero_stage": 3}, "pipeline-zero"),
        ({"tp": 3}, "heads-tp"),
        ({"quantized_gradients": True, "zero_stage": 2}, "quantized-gradients"),
        ({"recompute": "mlp", "software": "deepspeed_pipeline"}, "feed-forward-recompute"),
        ({"first_stage_layers": 3, "software": "megatron_deepspeed"}, "uneven-stages-software"),
        ({"comm_16bit": True}, "gradient-traffic"),
    ],
)
def test_a_fixed_value_that_no_rule_allows_names_the_rule(fixed: Any, rule: str) -> None:
    with pytest.raises(RequestError) as error:
        PlanRequest.parse(GOOD | {"search": {"fixed": fixed}}).resolve()
    assert f"[{rule}]" in str(error.value)


@pytest.mark.parametrize(
    ("search", "pair"),
    [
        (
            {"limits": {"tp": {"min": 4}, "sp": {"min": 2}}},
            ("/search/limits/tp", "/search/limits/sp"),
        ),
        (
            {"limits": {"dp": {"min": 8}}, "fixed": {"tp": 2}},
            ("/search/limits/dp", "/search/fixed/tp"),
        ),
        (
            {"fixed": {"offload_param": "cpu"}, "allow": {"zero": False}},
            ("/search/fixed/offload_param", "/search/allow/zero"),
        ),
    ],
)
def test_a_pair_of_wishes_that_contradict_is_named(search: Any, pair: tuple[str, str]) -> None:
    with pytest.raises(RequestError) as error:
        PlanRequest.parse(GOOD | {"search": search}).resolve()
    assert {p.pointer for p in error.value.problems} == set(pair)
    assert all("contradicts" in p.given for p in error.value.problems)
