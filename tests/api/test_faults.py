"""Faults that are told in words a reader can use: of optional bodies, parameters and jobs."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from api.faults import unexpected
from api.http.filters import filters_of
from api.problems.parameters import ParameterError
from api.routes import ROUTERS
from api.search_process.answers import answers
from cost_model.plans import Plan
from planner.request.pointers import models_of
from tests.api.samples import searched, small


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    """A request whose search has succeeded."""
    return searched(client, small())


def test_a_body_that_may_be_left_out_names_its_fields_too(
    client: TestClient, done: dict[str, Any]
) -> None:
    answer = client.post(done["links"]["campaigns"], json={"foo": 1})
    assert answer.status_code == 422
    assert "max_trials" in answer.json()["errors"][0]["wanted"]
    answer = client.post(done["links"]["campaigns"], json={"max_trial": 1})
    assert answer.json()["errors"][0]["wanted"] == "did you mean 'max_trials'?"


def test_every_body_of_a_route_has_fields_to_name() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    found = [getattr(route, "body_field", None) for route in routes]
    bodies = [body for body in found if body is not None]
    assert len(bodies) > 5
    assert all(models_of(body.field_info.annotation) for body in bodies)


@pytest.mark.parametrize(
    ("query", "parameter", "word"),
    [
        ("max_memory_gib=nan", "max_memory_gib", "finite"),
        ("min_step_seconds=inf", "min_step_seconds", "finite"),
        ("limit=5&limit=6", "limit", "once"),
        ("sort=rank&sort=mfu", "sort", "once"),
        ("tp=", "tp", "integer"),
    ],
)
def test_a_parameter_that_says_nothing_definite_is_refused(
    client: TestClient, done: dict[str, Any], query: str, parameter: str, word: str
) -> None:
    answer = client.get(f"/v1/plans/{done['id']}/candidates?{query}")
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["parameter"] == parameter
    assert word in error["detail"]


def test_values_of_one_knob_may_be_given_side_by_side(
    client: TestClient, done: dict[str, Any]
) -> None:
    items = client.get(f"/v1/plans/{done['id']}/candidates?tp=1&tp=2").json()["items"]
    assert {item["plan"]["tp"] for item in items} <= {1, 2}


def test_why_not_takes_each_knob_once(client: TestClient, done: dict[str, Any]) -> None:
    for query in ("explain?tp=8&tp=4", "?explain=tp=8,tp=4"):
        url = f"/v1/plans/{done['id']}" + ("" if query[0] == "?" else "/") + query
        answer = client.get(url)
        assert answer.status_code == 422, answer.text
        assert "once" in answer.json()["detail"]


@pytest.mark.parametrize("message", [{}, {"campaign_id": "x"}])
def test_an_unforeseen_fault_of_a_job_is_told_in_plain_words(message: dict[str, Any]) -> None:
    *_, last = answers(message)
    what = "campaign" if "campaign_id" in message else "search"
    assert last["kind"] == "error"
    assert last["error"]["title"] == f"The {what} failed"
    assert "Error" not in last["error"]["detail"]


def test_a_fault_of_the_code_says_nothing_but_that_it_is_one() -> None:
    assert unexpected(KeyError("x")).startswith("an unforeseen fault;")
    assert unexpected(ValueError("7 is odd")).startswith("7 is odd;")
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate({"dp": 2**21})
    assert unexpected(caught.value).startswith("/dp: ")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 50_000, "nested too deeply"),
        (b'{"model": ' + b"7" * 5_000 + b"}", "too many digits"),
        (b'{"model": "\xff"}', "not UTF-8: byte 11"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(client: TestClient, body: bytes, why: str) -> None:
    answer = client.post("/v1/plans", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert why in answer.json()["detail"]


def test_a_form_names_the_parameter_too() -> None:
    with pytest.raises(ParameterError) as caught:
        filters_of([("max_tp", "many"), ("tp", "x")])
    assert {p.pointer for p in caught.value.problems} == {"max_tp", "tp"}
