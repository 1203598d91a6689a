"""The page on memory runs, and its table of profiles is the shipped one."""

import re
from pathlib import Path

from cost_model.calibration.memory import default_memory_coefficients

PAGE = (Path(__file__).parents[3] / "docs" / "memory.md").read_text("utf-8")


def test_the_examples_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/memory.md", "exec"), {})


def cells(start: str) -> list[str]:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_table_of_profiles_is_the_shipped_one() -> None:
    known = default_memory_coefficients().software
    names = cells("figure")[1:6]
    figures = {
        "gradient bytes (bf16)": [known[n].gradient_bytes.bf16 for n in names],
        "norm (RMS) saves": [known[n].norm_saved_bytes for n in names],
        "gated MLP saves": [known[n].gated_saved for n in names],
        "logits at the loss": [known[n].logit_peak_bytes for n in names],
        "fp16 gradient at the step": [known[n].gradient_copy_bytes for n in names],
    }
    for row, values in figures.items():
        shown = [float(re.match(r"[\d.]+", cell).group()) for cell in cells(row)[1:6]]  # type: ignore[union-attr]
        assert shown == values, row
