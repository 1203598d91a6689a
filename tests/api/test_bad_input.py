"""Every refusal is problem+json that names the field, what was given and what would do."""

import copy
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from tests.api.samples import SHORTEST


def _with(path: str, value: Any) -> dict[str, Any]:
    """The shortest request with one value replaced."""
    body: dict[str, Any] = copy.deepcopy(SHORTEST)
    *parents, last = path.split("/")
    place = body
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return body


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        (_with("modle", 1), "/modle", "model"),
        (_with("training/seq_length", 1), "/training/seq_length", "seq_len"),
        (_with("cluster/nodes", 0), "/cluster/nodes", "1"),
        (_with("cluster/gpus_per_node", 0), "/cluster/gpus_per_node", "1"),
        (_with("cluster/preset", "dgx-a100-80gb"), "/cluster/preset", "dgx-a100-80g"),
        (_with("model/preset", "llama-2-13"), "/model/preset", "llama-2-13b"),
        (_with("training/seq_len", 8192), "/training/seq_len", "4096"),
        (_with("training/seq_len", "long"), "/training/seq_len", "integer"),
        (_with("search/fixed", {"tp": 16}), "/search/fixed/tp", "8"),
        (_with("search/objective", "speed"), "/search/objective", "throughput"),
        (_with("search/limits", {"tq": {"max": 2}}), "/search/limits", "tp"),
        (_with("model", {"config": {"model_type": "mamba"}}), "/model/config", "mamba"),
        (
            _with("model", {"config": {"model_type": "llama", "hidden_size": -1}}),
            "/model/config/hidden_size",
            "-1",
        ),
        (_with("model/preset", "meta-llama/Llama-2-13b-hf"), "/model/preset", "llama-2-13b"),
        (
            _with("training/lora", {"double_quantized": True}),
            "/training/lora/double_quantized",
            "quantized_base",
        ),
        ({"model": "llama-2-13b"}, "/cluster", "required"),
        (_with("cluster", 5), "/cluster", "give a JSON object"),
        ([], "", "give a JSON object"),
    ],
)
def test_a_refusal_names_the_field_and_what_would_do(
    client: TestClient, body: Any, pointer: str, words: str
) -> None:
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 422
    assert problem["instance"] == "/v1/plans"
    found = [e for e in problem["errors"] if e["pointer"].startswith(pointer)]
    assert found, problem
    text = " ".join(f"{e['given']} {e['wanted']}" for e in found)
    assert words in text
    assert problem["detail"]


def test_all_faults_are_reported_at_once(client: TestClient) -> None:
    body = _with("training/seq_length", 1) | {"cluster": {"preset": "dgx-a100-80g", "nodes": 0}}
    pointers = {e["pointer"] for e in client.post("/v1/plans", json=body).json()["errors"]}
    assert pointers >= {"/training/seq_length", "/cluster/nodes"}


def test_a_global_batch_that_nothing_divides_is_refused(client: TestClient) -> None:
    body = _with("training/global_batch", 7)
    body["search"] = {"fixed": {"dp": 8}}
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 422, answer.text


def test_a_body_of_another_type_is_told_the_right_one(client: TestClient) -> None:
    for path in ("/v1/plans", "/v1/predict"):
        answer = client.post(path, data={"model": "llama-2-13b"})
        assert answer.status_code == 415
        assert "application/json" in answer.json()["detail"]


def test_what_is_no_json_is_refused_with_its_place(client: TestClient) -> None:
    answer = client.post(
        "/v1/plans", content=b'{"model": ', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert "character" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("path", "pointers"),
    [
        ("/v1/plans", ["/model", "/cluster", "/training"]),
        ("/v1/predict", ["/model", "/cluster", "/training", "/plan"]),
        ("/v1/check", ["/config"]),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"content-type": "application/json"}])
def test_an_empty_body_is_told_each_field_that_is_missing(
    client: TestClient, path: str, pointers: list[str], headers: dict[str, str]
) -> None:
    answer = client.post(path, content=b"", headers=headers)
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json()["errors"]] == pointers


def test_a_key_that_is_given_twice_is_refused_at_its_place(client: TestClient) -> None:
    body = b"""{"model": {"preset": "llama-2-7b", "preset": "llama-2-13b"},
      "training": {"seq_len": 4096, "global_batch": 256},
      "cluster": {"preset": "dgx-a100-80g", "nodes": 1, "nodes": 2, "nodes": 1},
      "search": {"software": ["deepspeed", {"a/b": 1, "a/b": 1}]}}"""
    answer = client.post("/v1/plans", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    found = {e["pointer"]: e["given"] for e in answer.json()["errors"]}
    assert found == {
        "/model/preset": "the key is given 2 times",
        "/cluster/nodes": "the key is given 3 times",
        "/search/software/1/a~1b": "the key is given 2 times",
    }


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=0", "limit"),
        ("sort=speed", "sort"),
        ("zero=3", "zero"),
        ("tp=x", "tp"),
        ("zero_stage=4", "zero_stage"),
        ("recompute=some", "recompute"),
        ("cursor=nonsense", "cursor"),
        ("cursor=WzEsMl0", "cursor"),
        ("fits=perhaps", "fits"),
    ],
)
def test_a_bad_parameter_is_named(client: TestClient, query: str, parameter: str) -> None:
    plan = client.post("/v1/plans", json=SHORTEST).json()
    answer = client.get(f"{plan['links']['candidates']}?{query}")
    assert answer.status_code == 422, answer.text
    error = answer.json()["errors"][0]
    assert error["parameter"].startswith(parameter)
    assert error["location"] == "query"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans/nope",
        "/v1/plans/nope/candidates",
        "/v1/plans/nope/candidates/1",
        "/v1/plans/nope/candidates/1/ds_config",
        "/v1/plans/nope/events",
        "/v1/nothing",
    ],
)
def test_what_is_not_there_is_a_404_problem(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_a_wrong_method_is_told_the_right_ones(client: TestClient) -> None:
    answer = client.put("/v1/plans", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_refused(client: TestClient) -> None:
    body = _with("model/config", {"filler": "x" * 200_000})
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_fault_of_ours_is_a_500_problem_without_its_cause(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("api.routes.predict.predict_one", broken)
    answer = client.post("/v1/predict", json=SHORTEST | {"plan": {}})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


def test_a_key_is_asked_for_where_one_is_set(tmp_path: Any) -> None:
    settings = Settings(var=tmp_path, api_key="k3y")
    with TestClient(create_app(settings)) as served:
        assert served.get("/healthz").status_code == 200
        refused = served.get("/v1/models")
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["www-authenticate"]
        assert served.get("/v1/models", headers={"X-API-Key": "no"}).status_code == 401
        assert served.get("/v1/models", headers={"X-API-Key": "k3y"}).status_code == 200
        bearer = {"Authorization": "Bearer k3y"}
        assert served.get("/v1/models", headers=bearer).status_code == 200


def test_the_documentation_describes_problems_and_no_other_error(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], path
    post = document["paths"]["/v1/plans"]["post"]
    assert post["requestBody"]["content"]["application/json"]["examples"]["shortest"]
