"""The check from the command line and over HTTP."""

import json
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.cli.main import app
from api.routes.check import router

BAD = '{"train_batch_size": 8, "zero_optimisation": {"stage": 3},}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ds_config.json"
    path.write_text(BAD)
    return path


def test_an_error_gives_exit_code_1_and_the_promised_json(file: Path) -> None:
    ran = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert ran.exit_code == 1
    data = json.loads(ran.output)
    assert data["engine_accepts"] is True
    assert data["fixed"] == {"train_batch_size": 8, "zero_optimization": {"stage": 3}}


def test_fix_writes_a_file_that_has_no_error(file: Path) -> None:
    assert CliRunner().invoke(app, ["check", str(file), "--fix"]).exit_code == 1
    again = CliRunner().invoke(app, ["check", str(file)])
    assert again.exit_code == 0, again.output


def test_output_leaves_the_file_as_it_was(file: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["check", str(file), "--output", str(tmp_path / "new.json")])
    assert file.read_text() == BAD
    assert json.loads((tmp_path / "new.json").read_text())["zero_optimization"] == {"stage": 3}


def test_standard_input_is_read() -> None:
    ran = CliRunner().invoke(app, ["check", "-", "--json"], input='{"train_batch_size": 8}')
    assert ran.exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [["no-such-file.json"], ["-", "--software", "jax"], ["-", "--model", "no-such-model"]],
)
def test_a_wrong_argument_is_said_with_exit_code_2(arguments: list[str]) -> None:
    ran = CliRunner().invoke(app, ["check", *arguments], input="{}")
    assert ran.exit_code == 2
    assert "error" in ran.output


@pytest.fixture
def client() -> TestClient:
    service = FastAPI()
    service.include_router(router, prefix="/v1")
    return TestClient(service)


def test_the_route_takes_text_or_json_and_answers_alike(client: TestClient) -> None:
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 2, "stage3_max": 1}}
    answers = [
        client.post("/v1/check", json={"config": given}).json()
        for given in (config, json.dumps(config))
    ]
    assert answers[0] == answers[1]
    assert set(answers[0]) == {"engine_accepts", "findings", "fixed"}


def test_the_route_takes_a_model_and_a_cluster(client: TestClient) -> None:
    body = {
        "config": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}',
        "model": "llama-2-70b",
        "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
        "seq_len": 2048,
    }
    codes = {f["code"] for f in client.post("/v1/check", json=body).json()["findings"]}
    assert "memory-overflow" in codes


def test_the_route_refuses_what_is_no_request(client: TestClient) -> None:
    assert client.post("/v1/check", json={"config": 5}).status_code == 422
    assert client.post("/v1/check", json={"config": "{}", "software": "x"}).status_code == 422
