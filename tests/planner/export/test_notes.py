"""An export says where its format does something else than the plan."""

import pytest

from planner.export.registry import FORMATS
from tests.export.plans import planned


@pytest.mark.parametrize("form", ["hf_trainer", "accelerate", "llama_factory", "axolotl"])
def test_a_trainer_that_checkpoints_whole_layers_says_so_of_a_feed_forward_plan(form: str) -> None:
    """transformers' gradient_checkpointing wraps whole decoder layers, or none."""
    made = FORMATS[form](planned("zero3-mlp"))
    assert "whole layers" in made.notes[0]
    assert any("whole layers" in str(text) for text in made.files.values())
    assert FORMATS[form](planned("zero2-recompute")).notes == ()
