"""Asks the cost model about claims and says which hold."""

from dataclasses import dataclass

from pydantic import ValidationError

from cost_model.plans import PlanTable
from cost_model.predict import predict
from tests.benchmarks.cases.claim import Claim
from tests.benchmarks.cases.claims import claims_of
from tests.benchmarks.cases.fields import Fields
from tests.benchmarks.cases.translate import Question
from tests.benchmarks.rows.assumptions import Skip

GIB = 2.0**30
PARAMS_TOLERANCE = 0.01
SAVED_TOLERANCE = 0.1
HELD_TOLERANCE = 0.15


@dataclass(frozen=True)
class Verdict:
    """A claim and what the cost model says of it."""

    claim: Claim
    said: str
    right: bool


@dataclass(frozen=True)
class Judged:
    """A case with its verdicts, or why it has none."""

    case_id: str
    verdicts: tuple[Verdict, ...]
    skipped: str = ""

    @property
    def right(self) -> bool:
        """Whether every claim of the case is answered as observed."""
        return bool(self.verdicts) and all(v.right for v in self.verdicts)


def judge(case: Fields) -> Judged:
    """The verdicts on every claim of a case."""
    name = str(case.get("id") or "unnamed")
    if case.get("test_ready") is False:
        return Judged(name, (), "its collector says it states too little for a test")
    try:
        claims = claims_of(case)
        return Judged(name, tuple(_verdict(claim) for claim in claims))
    except Skip as reason:
        return Judged(name, (), str(reason))
    except ValidationError as error:
        return Judged(name, (), f"fields make no plan: {error.errors()[0]['msg']}")


def _verdict(claim: Claim) -> Verdict:
    question = claim.ask()
    if claim.outcome == "params":
        params = question.model.params
        right = abs(params / claim.quantity - 1) <= PARAMS_TOLERANCE
        return Verdict(claim, f"{params / 1e9:.2f} billion", right)
    if claim.outcome == "slower" and claim.other is not None:
        other = claim.other()
        mine, theirs = _seconds_per_sample(question), _seconds_per_sample(other)
        return Verdict(claim, f"{mine / theirs:.2f} times as long", mine > theirs)
    if claim.outcome == "saves" and claim.other is not None:
        saved = _peak_bytes(question) - _peak_bytes(claim.other())
        right = abs(saved / claim.quantity - 1) <= SAVED_TOLERANCE
        return Verdict(claim, f"{saved / GIB:.2f} of {claim.quantity / GIB:.2f} GiB", right)
    if claim.outcome == "holds":
        table = PlanTable.from_plans([question.plan])
        said_all = predict(question.model, question.cluster, question.training, table)
        held = float(said_all.memory.phases["init"][0])
        right = abs(held / claim.quantity - 1) <= HELD_TOLERANCE
        return Verdict(claim, f"{held / 1e9:.1f} GB", right)
    said, words = _outcome(question)
    both = said == "oom_both"  # either may be seen first: the host's at load, the GPU's in training
    either = claim.outcome == "oom" or both
    right = said != "fits" and claim.outcome != "fits" if either else said == claim.outcome
    return Verdict(claim, words, right)


def _seconds_per_sample(question: Question) -> float:
    """GPU-seconds per sequence."""
    table = PlanTable.from_plans([question.plan])
    said = predict(question.model, question.cluster, question.training, table)
    seconds = float(said.step.seconds[0])
    return seconds * question.plan.world_size / question.plan.global_batch


def _peak_bytes(question: Question) -> float:
    """What the allocator hands out at most."""
    table = PlanTable.from_plans([question.plan])
    said = predict(question.model, question.cluster, question.training, table)
    return float(said.memory.allocated_bytes[0])


def _outcome(question: Question) -> tuple[str, str]:
    """(fits, oom_gpu, oom_host or oom_both; the figures)."""
    table = PlanTable.from_plans([question.plan])
    said = predict(question.model, question.cluster, question.training, table)
    node = question.cluster.node
    gpu = float(said.memory.total_bytes[0]) / GIB
    host = float(said.memory.host_bytes[0]) / GIB
    words = (
        f"GPU {gpu:.1f} of {node.gpu.memory_gib:.1f} GiB, host {host:.0f} of "
        f"{node.host_ram_gib:.0f} GiB, fits with probability {float(said.fits_probability[0]):.2f}"
    )
    if said.fits[0]:
        return "fits", words
    if host > node.host_ram_gib:
        return "oom_host" if gpu <= node.gpu.memory_gib else "oom_both", words
    return "oom_gpu", words
