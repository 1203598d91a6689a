"""Measured step times as a least-squares problem in the logarithms of the parameters."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.calibration import Coefficients
from cost_model.plans import Floats, PlanTable
from cost_model.step import step_time
from tests.benchmarks.fitting.parameters import Parameter, document, value, with_values
from tests.benchmarks.rows import Row

ROBUST = 0.03
"""Log error from which a row counts less (soft L1): 3 %, the spread of repeated runs."""
STEP = 0.02
"""Change of a logarithm by which derivatives are taken."""


@dataclass(frozen=True)
class Group:
    """Rows of one model, cluster and training."""

    rows: tuple[Row, ...]
    at: npt.NDArray[np.int64]
    """Places of the rows in the problem's vectors."""
    table: PlanTable

    def touched_by(self, parameter: Parameter, doc: dict[str, Any]) -> bool:
        """Whether the parameter can change the group's prediction."""
        cluster = self.rows[0].cluster
        gpu, link = cluster.node.gpu, cluster.node.link
        stack = self.rows[0].training.stack
        for group, key, _ in parameter.places:
            hit = {
                "gpus": gpu.name == key,
                "architectures": gpu.name not in doc["gpus"] and gpu.generation == key,
                "links": key
                == (own if (own := f"{link.kind}/{gpu.name}") in doc["links"] else link.kind),
                "networks": cluster.network.kind == key
                and any(r.cluster.nodes > 1 for r in self.rows),
                "software": key == (stack if stack in doc["software"] else None)
                or (
                    stack not in doc["software"]
                    and any(r.plan.software.name.lower() == key for r in self.rows)
                ),
            }[group]
            if hit:
                return True
        return False


def _alike(row: Row) -> tuple[object, ...]:
    """Rows of one answer go into one call: the batch and the number of nodes are the plan's."""
    cluster = row.cluster.model_copy(update={"nodes": 1, "name": ""})
    training = row.training.model_copy(update={"global_batch": 1})
    return row.model.model_dump_json(), cluster.model_dump_json(), training.model_dump_json()


class StepTimes:
    """The problem: residuals are weighted logarithms of predicted over measured seconds."""

    def __init__(self, rows: Sequence[Row], base: Coefficients, parameters: list[Parameter]):
        self.rows = [r for r in rows if r.measured.seconds is not None]
        self.doc = document(base)
        self.parameters = parameters
        self.measured = np.array([r.measured.seconds for r in self.rows], dtype=float)
        members: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            members[_alike(row)].append(i)
        self.groups = [
            Group(
                tuple(self.rows[i] for i in places),
                np.array(places),
                PlanTable.from_plans(self.rows[i].plan for i in places),
            )
            for places in members.values()
        ]
        self.touched = [
            [g for g in self.groups if g.touched_by(p, self.doc)] for p in self.parameters
        ]
        counts = Counter(r.source for r in self.rows)
        # A source of a thousand rows says more than one of ten, but not a hundred times more.
        self.weights = np.array([counts[r.source] ** -0.25 for r in self.rows])
        self.start = np.log([value(self.doc, p) for p in parameters])
        self.expected = np.log([p.expected for p in parameters])
        self.spreads = np.array([p.spread for p in parameters])
        self.low = np.log([p.low for p in parameters])
        self.high = np.log([p.high for p in parameters])

    def coefficients(self, logs: Floats) -> Coefficients:
        """The coefficients at these logarithms."""
        return with_values(self.doc, self.parameters, [math.exp(v) for v in logs])

    def log_ratios(self, logs: Floats, groups: Sequence[Group] | None = None) -> Floats:
        """log(predicted / measured) [rows]; NaN outside the groups asked for."""
        known = self.coefficients(logs)
        out = np.full(len(self.rows), np.nan)
        for group in self.groups if groups is None else groups:
            first = group.rows[0]
            said = step_time(first.model, first.cluster, first.training, group.table, known)
            out[group.at] = np.log(said.seconds / self.measured[group.at])
        return out

    def jacobian(self, logs: Floats, ratios: Floats) -> Floats:
        """Derivatives of the log ratios [rows, parameters], by one-sided differences."""
        out = np.zeros((len(self.rows), len(self.parameters)))
        for j, groups in enumerate(self.touched):
            if not groups:
                continue
            moved = logs.copy()
            step = STEP if logs[j] + STEP <= self.high[j] else -STEP
            moved[j] += step
            changed = self.log_ratios(moved, groups)
            seen = ~np.isnan(changed)
            out[seen, j] = (changed[seen] - ratios[seen]) / step
        return out

    def cost(self, ratios: Floats, logs: Floats, keep: npt.NDArray[np.bool_]) -> float:
        """Robust sum of squares plus the expectation's."""
        z = (ratios[keep] / ROBUST) ** 2
        data = float((self.weights[keep] ** 2 * 2 * (np.sqrt(1 + z) - 1)).sum())
        return data + float((((logs - self.expected) / self.spreads) ** 2).sum())

    def step(
        self,
        logs: Floats,
        ratios: Floats,
        jacobian: Floats,
        keep: npt.NDArray[np.bool_],
        damping: float = 0.0,
    ) -> Floats:
        """One damped Gauss-Newton step on the rows kept, within the bounds [parameters]."""
        robust = self.weights**2 / np.sqrt(1 + (ratios / ROBUST) ** 2) / ROBUST**2
        weight = np.where(keep, robust, 0.0)
        normal = (jacobian * weight[:, None]).T @ jacobian
        gradient = jacobian.T @ (weight * ratios) + (logs - self.expected) / self.spreads**2
        normal += np.diag(1 / self.spreads**2 + damping * np.diag(normal))
        free = np.ones(len(logs), dtype=bool)
        moved = logs.copy()
        for _ in range(len(logs)):
            change = np.zeros(len(logs))
            change[free] = np.linalg.solve(normal[np.ix_(free, free)], -gradient[free])
            moved = np.clip(logs + change, self.low, self.high)
            stuck = free & ((logs + change < self.low) | (logs + change > self.high))
            if not stuck.any():
                break
            gradient = gradient + normal[:, stuck] @ (moved - logs)[stuck]
            free &= ~stuck
        return moved

    def solve(self, iterations: int = 8) -> tuple[Floats, Floats, Floats]:
        """(logs, log ratios, Jacobian) at the optimum: Levenberg-Marquardt with bounds."""
        logs = np.clip(self.start, self.low, self.high)
        every = np.ones(len(self.rows), dtype=np.bool_)
        ratios = self.log_ratios(logs)
        cost, damping = self.cost(ratios, logs, every), 1e-2
        jacobian = self.jacobian(logs, ratios)
        for _ in range(iterations):
            moved = self.step(logs, ratios, jacobian, every, damping)
            trial = self.log_ratios(moved)
            now = self.cost(trial, moved, every)
            if now < cost:
                done = cost - now < 1e-4 * cost
                logs, ratios, cost, damping = moved, trial, now, damping / 5
                jacobian = self.jacobian(logs, ratios)
                if done:
                    break
            else:
                damping *= 8
        return logs, ratios, jacobian
