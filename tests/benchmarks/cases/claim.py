"""One statement of a case, and what a case must state for any."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.benchmarks.cases.fields import Fields, numbers
from tests.benchmarks.cases.translate import Question
from tests.benchmarks.rows.assumptions import Skip

Outcome = Literal["fits", "oom_gpu", "oom_host", "oom", "slower", "params", "saves", "holds"]


@dataclass(frozen=True)
class Claim:
    """One statement of a case.

    `slower`: the question takes longer per sample than `other`. `params`: the model has
    `quantity` parameters. `saves`: `other` takes `quantity` bytes of the GPU fewer. `holds`: the
    GPU holds `quantity` bytes when the engine has started. The rest are outcomes of running the
    question.
    """

    what: str
    outcome: Outcome
    ask: Callable[[], Question]
    other: Callable[[], Question] | None = None
    quantity: float = 0.0


def outcome_of(words: str) -> Outcome | None:
    """The outcome that a text begins with."""
    for outcome in ("oom_gpu", "oom_host", "oom", "fits"):
        if words.lower().startswith(outcome):
            return outcome
    return None


def gpu_counts(case: Fields) -> list[int]:
    cluster: Fields = case.get("cluster") or {}
    counts = [int(n) for n in numbers(cluster.get("gpus"))]
    if not counts:
        raise Skip("number of GPUs not stated")
    return counts
