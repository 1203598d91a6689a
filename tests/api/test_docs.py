"""The pages about the service agree with it."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.http.filters import MEASURES
from api.settings import Settings
from tests.api.samples import SHORTEST

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def test_every_route_is_in_the_table() -> None:
    documented = set(re.findall(r"`(GET|POST|DELETE|PUT|PATCH) (/[^`]*)`", PAGE))
    schema = create_app(Settings()).openapi()
    served = {
        (method.upper(), path)
        for path, operations in schema["paths"].items()
        for method in operations
    }
    assert served == documented


def test_every_setting_is_in_the_table_with_its_default() -> None:
    source = (Path(__file__).parents[2] / "api" / "settings.py").read_text()
    read = set(re.findall(r'"(MESHWRIGHT_[A-Z_]+)"', source))
    rows = dict(re.findall(r"^\| (MESHWRIGHT_[A-Z_]+) \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert read == set(rows)
    default = Settings()
    for field in fields(Settings):
        value = getattr(default, field.name)
        if isinstance(value, int | float):
            assert float(rows[f"MESHWRIGHT_{field.name.upper()}"]) == value


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_is_named(measure: str) -> None:
    assert f"`{measure}`" in PAGE


def test_the_error_on_the_page_is_the_one_that_is_sent(client: TestClient) -> None:
    body = SHORTEST | {"training": {"seq_len": 8192, "global_batch": 256}}
    detail = client.post("/v1/plans", json=body).json()["detail"]
    assert f'"detail": "{detail}"' in PAGE
