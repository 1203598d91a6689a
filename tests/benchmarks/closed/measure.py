"""Runs the plans of the closed loop, each several times."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from cost_model.catalogue import cluster
from planner.export import ds_config
from tests.benchmarks.closed.plans import Case, case
from trials.executors.local import LocalExecutor
from trials.executors.protocol import State
from trials.result import TrialResult
from trials.trial_file import TrialFile

LOOK_S = 0.1
WARM = case(dp=2, layers=1, batch=2)


@dataclass
class Measured:
    """The fastest run of a case."""

    seconds: float | None
    outcome: str
    sweep: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    scatter: float = 0.0
    """How much slower its slowest run was."""


class Bench:
    """Two warm ranks on this machine."""

    def __init__(self, root: Path, *, rounds: int, record: Path | None, first: bool):
        self.cluster = cluster("local-cpu")
        self.executor = LocalExecutor(root, ranks=2)
        self.rounds, self.record = rounds, record
        self.known: dict[str, list[dict[str, Any]]] = {}
        if record is not None and record.exists():
            self.known = json.loads(record.read_text("utf-8"))
        self.number = 0
        self.first = first

    def __enter__(self) -> "Bench":
        """Starts the warm workers; they hand their priority on to the ranks."""
        before = os.sched_getscheduler(0)
        if self.first:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        try:
            self._once(WARM)
        finally:
            os.sched_setscheduler(0, before, os.sched_param(0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.executor.close()

    def measure(self, cases: Sequence[Case]) -> list[Measured]:
        """The fastest run of each case. Rounds over all cases, so that a slow minute of the machine
        hits a run of each and not all runs of one."""
        for _ in range(self.rounds):
            for one in cases:
                runs = self.known.setdefault(one.name, [])
                if len(runs) < self.rounds and all(r["seconds"] is not None for r in runs):
                    runs.append(asdict(self._once(one)))
                    if self.record is not None:
                        self.record.write_text(json.dumps(self.known), "utf-8")
        return [self._best(one) for one in cases]

    def _best(self, one: Case) -> Measured:
        runs = [Measured(**run) for run in self.known[one.name]]
        best = min(runs, key=lambda r: r.seconds or float("inf"))
        swept = next((r for r in runs if r.sweep), best)
        times = [r.seconds for r in runs if r.seconds is not None]
        scatter = max(times) / min(times) - 1 if times else 0.0
        return replace(best, sweep=swept.sweep, kernels=swept.kernels, scatter=scatter)

    def _once(self, one: Case) -> Measured:
        self.number += 1
        name = f"case-{self.number:03d}"
        self.executor.submit(
            TrialFile(
                trial_id=name,
                model=one.model,
                training=one.training,
                plan=one.plan,
                ds_config=ds_config(one.model, self.cluster, one.training, one.plan),
                steps=7,
                device="cpu",
                sweep_collectives=one.sweep,
            )
        )
        while self.executor.state(name) is not State.ENDED:
            time.sleep(LOOK_S)
        result = self.executor.result(name)
        assert result is not None
        return _measured(result)


def _measured(result: TrialResult) -> Measured:
    first = result.ranks[0] if result.ranks else None
    return Measured(
        seconds=result.step_seconds,
        outcome=f"{result.outcome.kind} {result.outcome.message[:200]}".strip(),
        sweep=[c.model_dump() for c in first.collectives] if first else [],
        kernels=[k.model_dump() for k in first.kernels] if first else [],
    )
