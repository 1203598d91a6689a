"""Whatever is sent, the service answers with a result or with a problem: never with a 500."""

import copy
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model.plans import Plan
from tests.api.samples import SHORTEST, TINY, searched

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, 2**31, 2**63, 10**30, 1e308, -1.5, "", "0", "nan", [], {}, [[]]]),
    st.text(max_size=8),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(-3, 3), max_size=2),
)

PATHS = (
    "model", "model/preset", "model/config", "model/config/model_type", "model/geometry",
    "model/geometry/hidden", "model/geometry/layers", "model/geometry/heads",
    "cluster", "cluster/preset", "cluster/nodes", "cluster/gpu", "cluster/gpus_per_node",
    "cluster/network", "cluster/host_ram_gib", "cluster/link", "cluster/usd_per_gpu_hour",
    "training", "training/seq_len", "training/global_batch", "training/global_batch_tokens",
    "training/precision", "training/tokens", "training/lora", "training/lora/rank",
    "training/dropout", "search", "search/objective", "search/limits", "search/limits/tp",
    "search/fixed", "search/fixed/tp", "search/fixed/zero_stage", "search/keep",
    "search/deadline_days", "search/software", "search/allow", "search/around",
    "search/headroom_gib", "search/min_fits_probability", "unknown",
)  # fmt: skip
"""Fields to put something odd into."""


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    place = body
    *parents, last = path.split("/")
    for name in parents:
        if not isinstance(place.get(name), dict):
            place[name] = {}
        place = place[name]
    place[last] = value


def _check(answer: Any, body: Any) -> None:
    assert answer.status_code < 500, (body, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        for error in answer.json().get("errors", ()):
            assert error["detail"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(changes=st.lists(st.tuples(st.sampled_from(PATHS), ODD), min_size=1, max_size=3))
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_odd_values_anywhere_in_a_request_never_break_the_service(
    client: TestClient, changes: list[tuple[str, Any]]
) -> None:
    body = copy.deepcopy(SHORTEST) | {"plan": {"zero_stage": 3}}
    for path, value in changes:
        _put(body, path, value)
    body.pop("search", None)
    _check(client.post("/v1/predict", json=body), body)
    body = copy.deepcopy(SHORTEST)
    for path, value in changes:
        _put(body, path, value)
    answer = client.post("/v1/plans", json=body)
    _check(answer, body)
    if answer.status_code == 202:
        client.post(answer.json()["links"]["cancel"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(
    knob=st.sampled_from(["tp", "pp", "dp", "sp", "cp", "ep", "vpp", "micro_batch", "grad_accum",
                          "hpz", "recompute_layers", "first_stage_layers", "offload_ratio",
                          "zero_stage", "software", "recompute", "reduce_bucket",
                          "capacity_factor"]),
    value=ODD,
)  # fmt: skip
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_odd_knobs_never_break_a_prediction(client: TestClient, knob: str, value: Any) -> None:
    body = SHORTEST | {"plan": {knob: value}}
    _check(client.post("/v1/predict", json=body), body)


RUNS = {
    "trials": ("candidates", "executor", "steps", "timeout_s", "data", "adapt_micro_batch"),
    "campaigns": ("executor", "max_trials", "confidence", "seed", "sampler", "max_seconds"),
    "candidates/1/dry-run": ("stages", "time_limit_s", "unknown"),
}
"""Bodies that start something, and fields of them to put something odd into."""


@pytest.fixture(scope="module")
def tiny(client: TestClient) -> str:
    """Where a request lives whose search is done."""
    return str(searched(client, TINY)["links"]["self"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(
    field=st.sampled_from([(what, name) for what, names in RUNS.items() for name in names]),
    value=ODD,
)
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_odd_bodies_never_break_what_runs(
    client: TestClient, tiny: str, field: tuple[str, str], value: Any
) -> None:
    what, name = field
    body = ({"candidates": [1]} if what == "trials" else {}) | {name: value}
    answer = client.post(f"{tiny}/{what}", json=body)
    _check(answer, body)
    if answer.status_code == 202:
        for made in answer.json().get("items", [answer.json()]):
            client.post(made["links"]["cancel"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(knob=st.sampled_from(sorted(Plan.model_fields)), value=ODD)
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_odd_knobs_never_break_an_explanation(
    client: TestClient, tiny: str, knob: str, value: Any
) -> None:
    _check(client.get(f"{tiny}/explain", params={knob: str(value)}), (knob, value))
    _check(client.get(tiny, params={"explain": json.dumps({knob: value})}), (knob, value))


@given(query=st.text(max_size=30))
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_odd_cursors_never_break_a_list(client: TestClient, query: str) -> None:
    _check(client.get("/v1/plans", params={"cursor": query}), query)
