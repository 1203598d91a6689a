"""What a campaign is asked, and everything it knows: plain data, so that any process goes on."""

from typing import Literal

from pydantic import Field

from cost_model.calibration.cluster import ClusterCalibration
from cost_model.calibration.observations import STEP_NOISE
from cost_model.plans import Plan
from cost_model.specs.frozen import Frozen
from trials.outcome import Kind
from trials.proposal import Proxy
from trials.result import CollectiveMeasurement, KernelMeasurement


class CampaignSettings(Frozen):
    """How a campaign spends its trials."""

    max_trials: int = Field(default=8, ge=1, le=1000)
    parallel: int = Field(default=1, ge=1, le=100)
    """Trials that may run at a time."""
    confidence: float = Field(default=0.9, gt=0, le=1)
    """Ends once the best plan is the best with this probability, within `tolerance`."""
    tolerance: float = Field(default=0.05, ge=0, le=1)
    """A plan that is this much slower than the best one counts as the best, too."""
    steps: int = Field(default=5, ge=1, le=10_000)
    """Measured optimizer steps of a trial."""
    warmup_steps: int = Field(default=2, ge=0, le=1_000)
    sampler: Literal["tpe", "nsga2", "random"] = "tpe"
    seed: int = Field(default=0, ge=0, lt=2**31)
    proxies: bool = True
    """Whether smaller runs may stand for plans that need more ranks than there are."""
    trial_timeout_s: float = Field(default=600.0, gt=0)
    max_seconds: float | None = Field(default=None, gt=0)
    """No more trials once those that ended have taken so long, added up."""
    prune_above: float = Field(default=1.3, ge=1)
    """A trial stops early once its steps take this many times the best measured one."""


class CampaignTrial(Frozen):
    """One trial, proposed or ended."""

    trial_id: str
    plan: Plan
    """The plan that it verifies."""
    proxy: Proxy | None = None
    """What ran in its place; None where the plan itself ran. Times and bytes are then the
    proxy's."""
    origin: Literal["ranking", "sampler"] = "ranking"
    note: str = ""
    predicted_seconds: float
    measured_seconds: float | None = None
    noise: float = STEP_NOISE
    """Log-normal standard deviation of the measured time."""
    predicted_bytes: float
    measured_bytes: float | None = None
    """Allocated peak; None where the device does not tell."""
    outcome: Kind | None = None
    """None while it is pending."""
    message: str = ""
    phase: str | None = None
    wall_seconds: float = 0.0
    foreign: bool = False
    """It ran on a device that is not the cluster's: nothing is learned from it."""
    collectives: tuple[CollectiveMeasurement, ...] = ()
    kernels: tuple[KernelMeasurement, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether its result is still awaited."""
        return self.outcome is None

    @property
    def ran(self) -> bool:
        """Whether it measured a step time; a pruned trial did."""
        return self.measured_seconds is not None and self.outcome in ("ok", "pruned")


class RankedPlan(Frozen):
    """One plan of the calibrated ranking."""

    plan: Plan
    seconds: float
    seconds_low: float
    seconds_high: float
    """90 % of such plans lie between low and high."""
    fits_probability: float
    total_bytes: float
    best_probability: float = 0.0
    """That no other plan is faster."""
    trials: int = 0
    """Trials that verified it, proxies included."""


class CampaignState(Frozen):
    """A campaign between two steps."""

    campaign_id: str
    settings: CampaignSettings
    ranks: int
    """Of the executor."""
    trials: tuple[CampaignTrial, ...] = ()
    prior: ClusterCalibration
    """What was known before the first trial."""
    calibration: ClusterCalibration
    """What is known now."""
    ranking: tuple[RankedPlan, ...] = ()
    best: Plan | None = None
    confidence: float = 0.0
    """Probability that no other plan beats `best` by more than the tolerance."""
    ended: str | None = None
    """confident, budget spent, time spent, all plans tried, no trial can be run, nothing runs,
    nothing fits."""
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[CampaignTrial, ...]:
        """Trials whose results are awaited."""
        return tuple(t for t in self.trials if t.pending)
