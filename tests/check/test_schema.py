"""The schema file is what the installed DeepSpeed prints."""

import json
from importlib.resources import files

import pytest

from planner.check import schema

pytest.importorskip("deepspeed")


def test_the_schema_file_equals_what_the_installed_version_prints() -> None:
    from tests.tools.print_ds_schema import schema as printed

    now = json.loads(json.dumps(printed()))
    file = files("planner.check") / "data" / "schemas" / f"{now['deepspeed']}.json"
    assert json.loads(file.read_text("utf-8")) == now


def test_the_default_version_has_a_schema() -> None:
    assert schema.DEFAULT_VERSION in schema.versions()


def test_a_version_without_a_schema_takes_the_one_before_it() -> None:
    assert schema.nearest("0.17.9") == "0.17.6"
    assert schema.nearest("0.3.1") == schema.versions()[0]


def test_removed_keys_are_known_to_the_versions_that_had_them() -> None:
    assert schema.known_in("progressive_layer_drop")[-1] == "0.19.7"
    assert schema.known_in("compression_training")[-1] == "0.19.0"
    assert "0.16.0" not in schema.known_in("tensor_parallel.autotp_size")
