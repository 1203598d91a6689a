"""Campaigns and calibrations as the routes show them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api.calibrated import read
from api.schemas.jobs import JobResource, job_fields
from api.store import CalibrationRecord, CampaignRecord
from api.wording import summary
from cost_model.plans import Plan
from trials.campaign import CampaignSettings, CampaignState, CampaignTrial, RankedPlan

SHOWN = 50
"""Plans of a campaign's ranking in an answer."""


class CampaignRequest(CampaignSettings):
    """How a campaign spends its trials, and where. An empty body will do."""

    executor: str = Field("local", max_length=32)
    """One of GET /v1/executors; where it submits and with which account is the service's own."""
    steps: int = Field(5, ge=1, le=10_000)
    """Measured optimizer steps of a trial."""
    warmup_steps: int = Field(2, ge=0, le=1_000)
    seed: int = Field(0, ge=0, lt=2**31)
    trial_timeout_s: float = Field(600, gt=0, le=86_400)
    calibrated: bool = True
    """Whether it begins with what earlier campaigns taught about this kind of cluster."""

    def settings(self) -> CampaignSettings:
        """Those that the campaign itself reads."""
        return CampaignSettings(**self.model_dump(include=set(CampaignSettings.model_fields)))


class Calibration(BaseModel):
    """What trials have taught about one kind of cluster."""

    key: str
    """The kind: GPU, links, network and host, not the number of nodes."""
    trials: int
    """Trials that it has learned from."""
    factors: dict[str, float]
    """On the shipped coefficients; 1 leaves a figure as it is."""
    deviations: dict[str, float]
    """Standard deviation of each factor's logarithm."""
    spread: float
    """Log-normal standard deviation of a plan's step time around the prediction."""

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> "Calibration | None":
        """From what is stored; None where there is nothing, or nothing that can be used."""
        found = read(stored)
        if found is None:
            return None
        return cls(
            key=found.key,
            trials=found.n_trials,
            factors=found.factors,
            deviations=found.deviations,
            spread=found.spread,
        )


class KeptCalibration(Calibration):
    """A calibration that searches and predictions on such clusters use."""

    updated_at: datetime


class Calibrations(BaseModel):
    """All of them, the last learned first."""

    items: list[KeptCalibration]


def kept_calibration(record: CalibrationRecord) -> KeptCalibration | None:
    """From what is stored; None where it can be used no more."""
    found = Calibration.of(record.calibration)
    if found is None:
        return None
    return KeptCalibration(**found.model_dump(), updated_at=record.updated_at)


class CampaignLinks(BaseModel):
    """Where to go from a campaign."""

    self: str
    cancel: str
    trials: str
    study: str
    """An Optuna journal."""
    plan: str
    page: str
    """For people."""


class TriedPlan(CampaignTrial):
    """One trial of a campaign."""

    summary: str
    """The plan that it verifies, in one line."""
    link: str


class LearnedPlan(RankedPlan):
    """One plan of the ranking that the trials have taught."""

    summary: str


class CampaignItem(JobResource):
    """One line of the list of campaigns."""

    plan_id: str
    executor: str
    tried: int
    """Trials that have ended."""
    max_trials: int
    confidence: float | None
    """Probability that no other plan beats the best one by more than the tolerance."""
    best: Plan | None
    summary: str | None
    """The best plan in one line."""
    ended: str | None
    """Why it ended: confident, budget spent, time spent, all plans tried, no trial can be run,
    nothing runs, nothing fits."""
    links: CampaignLinks


class CampaignResource(CampaignItem):
    """One campaign in full."""

    settings: CampaignSettings
    ranks: int | None
    """Of the executor."""
    trials: list[TriedPlan]
    ranking: list[LearnedPlan]
    """The best plans, as predicted with what the trials have taught."""
    calibration: Calibration | None
    notes: list[str]


def _item_fields(record: CampaignRecord, state: CampaignState | None) -> dict[str, Any]:
    own, plan = f"/v1/campaigns/{record.id}", f"/v1/plans/{record.plan_request_id}"
    best = None if state is None else state.best
    return {
        **job_fields(record),
        "plan_id": record.plan_request_id,
        "executor": record.executor,
        "tried": 0 if state is None else len(state.trials) - len(state.pending),
        "max_trials": record.settings["max_trials"],
        "confidence": None if state is None else state.confidence,
        "best": best,
        "summary": None if best is None else summary(best),
        "ended": None if state is None else state.ended,
        "links": CampaignLinks(
            self=own,
            cancel=f"{own}/cancel",
            trials=f"/v1/trials?campaign_id={record.id}",
            study=f"{own}/study",
            plan=plan,
            page=f"/campaigns/{record.id}",
        ),
    }


def _state(record: CampaignRecord) -> CampaignState | None:
    return None if record.result is None else CampaignState.model_validate(record.result)


def campaign_item(record: CampaignRecord) -> CampaignItem:
    """One line of what is stored."""
    return CampaignItem(**_item_fields(record, _state(record)))


def campaign_resource(record: CampaignRecord) -> CampaignResource:
    """All of what is stored."""
    state = _state(record)
    trials = () if state is None else state.trials
    ranking = () if state is None else state.ranking[:SHOWN]
    return CampaignResource(
        **_item_fields(record, state),
        settings=CampaignSettings.model_validate(record.settings),
        ranks=None if state is None else state.ranks,
        trials=[
            TriedPlan(**dict(t), summary=summary(t.plan), link=f"/v1/trials/{t.trial_id}")
            for t in trials
        ],
        ranking=[LearnedPlan(**dict(r), summary=summary(r.plan)) for r in ranking],
        calibration=None if record.result is None else Calibration.of(record.result["calibration"]),
        notes=[] if state is None else list(state.notes),
    )


class CampaignPage(BaseModel):
    """One page of campaigns, the newest first."""

    items: list[CampaignItem]
    next: str | None
    """Where the next page is; null on the last one."""
