"""The whole request, and what it resolves to."""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from cost_model.calibration import Coefficients
from cost_model.calibration.memory import MemoryCoefficients
from cost_model.plans import Plan
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from cost_model.specs.frozen import Frozen
from planner.errors import Problem, RequestError
from planner.groups import options
from planner.request.cluster import ClusterRequest
from planner.request.coherence import coherence_problems, deadline_problems
from planner.request.model import ModelRequest
from planner.request.pointers import problems_of
from planner.request.search import SearchOptions
from planner.request.training import TrainingRequest
from planner.rules import World


@dataclass(frozen=True)
class Resolved:
    """A request with every name looked up."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    search: SearchOptions
    groups: tuple[ClusterSpec, ...] = ()
    """Node groups with different GPUs; empty for a cluster of equal nodes."""
    coefficients: Coefficients | None = None
    """Of step time, where trials on this cluster have calibrated them; None takes the shipped."""
    memory_coefficients: MemoryCoefficients | None = None
    """The same of memory."""
    notes: tuple[str, ...] = ()
    """Where the request was read as something else than it says."""

    @property
    def world(self) -> World:
        """What plans are judged against."""
        return World(
            self.model, self.cluster, self.training, self.coefficients, self.memory_coefficients
        )


class _Request(Frozen):
    model: ModelRequest
    cluster: ClusterRequest
    training: TrainingRequest

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Validates plain data; every fault is in the RequestError that is raised."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise RequestError(problems_of(error.errors(), cls)) from error

    def _world(self) -> tuple[ModelSpec, ClusterSpec, TrainingSpec]:
        problems: list[Problem] = []
        model: ModelSpec | None = None
        cluster: ClusterSpec | None = None
        try:
            model = self.model.spec()
        except RequestError as error:
            problems += error.problems
        try:
            cluster = self.cluster.spec()
        except RequestError as error:
            problems += error.problems
        if model is None or cluster is None:
            raise RequestError(problems)
        training = self.training.spec(cluster)
        problems += coherence_problems(model, cluster, training)
        if problems:
            raise RequestError(problems)
        return model, cluster, training


class PlanRequest(_Request):
    """POST /v1/plans."""

    search: SearchOptions = SearchOptions()

    def resolve(self) -> Resolved:
        """Looks every name up and checks the parts against each other.

        Raises RequestError with every fault found, an empty space of legal plans included.
        """
        # the space is of the search options of a request, so it is there after them
        from planner.space.emptiness import emptiness_problems

        model, cluster, training = self._world()
        groups = self.cluster.group_specs()
        problems = deadline_problems(self.search, training)
        if not problems:
            for one in options(groups).clusters or (cluster,):
                problems = emptiness_problems(World(model, one, training), self.search)
                if not problems:
                    break
        if problems:
            raise RequestError(problems)
        notes = self.training.notes
        return Resolved(model, cluster, training, self.search, groups, notes=notes)


class PredictRequest(_Request):
    """POST /v1/predict: one plan instead of a search."""

    plan: Plan

    def resolve(self) -> Resolved:
        """As PlanRequest.resolve; the plan itself may break rules, which the answer lists."""
        model, cluster, training = self._world()
        return Resolved(model, cluster, training, SearchOptions())
