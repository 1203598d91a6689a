"""Every bad request is refused with a pointer, what was given and what would do."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from cost_model.specs import ModelGeometry
from planner.errors import RequestError
from planner.export.options import ExportOptions
from planner.request import PlanRequest, PredictRequest
from planner.request.pointers import problems_of

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
    ("cluster/link", "nvlink9", "/cluster/link", "no link is named 'nvlink9'; did you mean"),
    ("cluster/network", "foo", "/cluster/network", "no network is named 'foo'; one of"),
    ("cluster", {"nodes": 2}, "/cluster", "give a preset"),
    ("training/seq_len", 8192, "/training/seq_len", "give at most 4096"),
    ("training/seq_len", "long", "/training/seq_len", "an integer"),
    ("cluster/nodes", 2**20, "/cluster/nodes", "at most 131072 nodes"),
    ("training/global_batch", 0, "/training/global_batch", "greater than or equal to 1"),
    ("training/precision", "fp8", "/training/precision", "'bf16', 'fp16' or 'fp32'"),
    ("training/optimizer", "OneBitAdam", "/training/optimizer", "no 1-bit optimizer"),
    ("training/sequence_length", 1, "/training/sequence_length", "no field"),
    ("search", {"fixed": {"tp": 16}}, "/search/fixed/tp", "the cluster has 1"),
    ("search", {"fixed": {"tp": 3}}, "/search/fixed/tp", "[heads-tp]"),
    ("search", {"limits": {"tq": {"max": 1}}}, "/search/limits", "'tq' cannot be limited"),
    ("search", {"limits": {"tp": {"min": 4, "max": 2}}}, "/search/limits/tp", "no value is left"),
    ("search", {"limits": {"pp": {"min": 64}}}, "/search/limits/pp", "offers 1, 2, 4 or 8"),
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


def _refused(request: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(RequestError) as caught:
        PlanRequest.parse(request).resolve()
    return {p.pointer: p.message for p in caught.value.problems}


@pytest.mark.parametrize(
    ("cluster", "precision", "number", "said"),
    [
        # data sheets: fp8 begins with Hopper and Ada, TF32 with Ampere
        ("dgx-a100-80g", "bf16", "fp8", "no fp8 matrix unit"),
        ("dgx-2", "fp32", "tf32", "no tf32 matrix unit"),
        ("dgx-2", "fp16", "fp8", "no fp8 matrix unit"),
        ("dgx-a100-80g", "fp32", "fp8", "give precision bf16 or fp16"),
        ("dgx-h100", "fp32", "fp8", "give precision bf16 or fp16"),
        ("dgx-h100", "bf16", "tf32", "give precision fp32"),
    ],
)
def test_a_product_format_without_its_unit_or_precision_is_refused(
    cluster: str, precision: str, number: str, said: str
) -> None:
    request = _with("training/matmul_precision", number)
    request["training"]["precision"] = precision
    request["cluster"] = {"preset": cluster}
    problems = _refused(request)
    assert list(problems) == ["/training/matmul_precision"]
    assert said in problems["/training/matmul_precision"]


@pytest.mark.parametrize(
    ("cluster", "precision", "number"),
    [("dgx-a100-80g", "fp32", "tf32"), ("dgx-h100", "bf16", "fp8")],
)
def test_a_product_format_with_its_unit_is_taken(cluster: str, precision: str, number: str) -> None:
    request = _with("training/matmul_precision", number)
    request["training"]["precision"] = precision
    request["cluster"] = {"preset": cluster}
    assert PlanRequest.parse(request).resolve().training.matmul_precision == number


A_GPU = {
    "name": "own",
    "memory_gib": 40,
    "bf16_tflops": 300,
    "fp16_tflops": 300,
    "fp32_tflops": 20,
    "memory_bandwidth_gb_per_s": 1500,
    "sms": 100,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bf16_tflops", -3),
        ("bf16_tflops", 0),
        ("tf32_tflops", -1),
        ("fp8_tflops", 0),
        ("usd_per_hour", -3),
        ("memory_gib", 1e300),
        ("fp16_tflops", 1e-300),
        ("sms", 2**40),
    ],
)
def test_a_data_sheet_beyond_all_reason_is_refused(field: str, value: float) -> None:
    gpu = A_GPU | {field: value}
    cluster = {"gpu": gpu, "gpus_per_node": 1, "host_ram_gib": 100}
    assert list(_refused(GOOD | {"cluster": cluster})) == [f"/cluster/gpu/{field}"]


def _open_ends(schema: Any, where: str) -> list[str]:
    """Places in a JSON schema where a number has no lower or no upper bound."""
    if isinstance(schema, list):
        return [p for i, part in enumerate(schema) for p in _open_ends(part, f"{where}/{i}")]
    if not isinstance(schema, dict):
        return []
    found = []
    if schema.get("type") in ("integer", "number") and "enum" not in schema:
        low = {"minimum", "exclusiveMinimum"} & set(schema)
        high = {"maximum", "exclusiveMaximum"} & set(schema)
        found = [] if low and high else [where]
    return found + [p for k, part in schema.items() for p in _open_ends(part, f"{where}/{k}")]


@pytest.mark.parametrize("model", [PlanRequest, PredictRequest, ModelGeometry, ExportOptions])
def test_every_number_of_a_request_has_two_bounds(model: type[BaseModel]) -> None:
    assert not _open_ends(model.model_json_schema(), "")


@pytest.mark.parametrize(
    ("path", "value", "pointer"),
    [
        ("cluster/nodes", True, "/cluster/nodes"),
        ("cluster/nodes", "1", "/cluster/nodes"),
        ("training/seq_len", "4096", "/training/seq_len"),
        ("training/dropout", False, "/training/dropout"),
        ("training/fused_norm", "no", "/training/fused_norm"),
        ("search", {"limits": {"tp": {"values": [1, "2"]}}}, "/search/limits/tp/values"),
        ("search", {"fixed": {"tp": True}}, "/search/fixed/tp"),
        ("search", {"allow": {"pp": "yes"}}, "/search/allow/pp"),
        ("search", {"around": {"sequence_parallel": "no"}}, "/search/around/sequence_parallel"),
        ("model", {"hidden": True, "layers": 1, "heads": 1}, "/model/geometry/hidden"),
    ],
)
def test_a_number_or_a_switch_of_another_type_is_refused(
    path: str, value: Any, pointer: str
) -> None:
    assert list(_refused(_with(path, value))) == [pointer]


def test_a_whole_number_may_have_a_point() -> None:
    assert PlanRequest.parse(_with("cluster/nodes", 2.0)).resolve().cluster.nodes == 2


class _Either(BaseModel):
    config: str | dict[str, list[int]]
    other: list[int | list[int]] | None = None


def test_pointers_name_keys_and_never_the_alternatives_of_a_type() -> None:
    body = {"config": {"str": [1, "x"]}, "other": [1, [2, "y"]]}
    with pytest.raises(ValidationError) as caught:
        _Either.model_validate(body)
    found = {p.pointer for p in problems_of(caught.value.errors(), _Either)}
    assert found == {"/config", "/config/str/1", "/other/1", "/other/1/1"}
