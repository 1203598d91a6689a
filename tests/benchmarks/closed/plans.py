"""What the closed loop trains: small models, two ranks, plans of every kind."""

from dataclasses import dataclass
from functools import cache

from cost_model.plans import Plan
from cost_model.specs import ModelGeometry, ModelSpec, TrainingSpec
from planner.ranking import rank
from planner.request import PlanRequest, Resolved

PIPELINE = "deepspeed_pipeline"
MEGATRON = "megatron_deepspeed"


@dataclass(frozen=True)
class Case:
    """One plan of one model."""

    name: str
    model: ModelSpec
    training: TrainingSpec
    plan: Plan
    sweep: bool = False


@cache
def model(hidden: int = 256, layers: int = 4, vocab: int = 4096) -> ModelSpec:
    """A Llama-shaped model with heads of 64."""
    return ModelGeometry(
        hidden=hidden,
        layers=layers,
        heads=hidden // 64,
        intermediate=hidden * 11 // 4,
        vocab=vocab,
    ).spec()


def case(
    *,
    hidden: int = 256,
    layers: int = 4,
    seq_len: int = 128,
    batch: int = 8,
    sweep: bool = False,
    **plan: object,
) -> Case:
    """A case whose accumulation follows from the batch."""
    made = Plan.model_validate(plan)
    accumulate = batch // (made.dp * made.micro_batch)
    made = made.model_copy(update={"grad_accum": accumulate})
    training = TrainingSpec(seq_len=seq_len, global_batch=batch, precision="fp32", attention="sdpa")
    knobs = " ".join(f"{k} {getattr(v, 'name', v)}" for k, v in plan.items())
    name = f"h{hidden} l{layers} s{seq_len} {knobs.replace('micro_batch', 'mb')}"
    name = name.replace("zero_stage", "zero").replace("software ", "").replace("deepspeed", "ds")
    return Case(name, model(hidden, layers), training, made, sweep)


CALIBRATION = (
    case(dp=2, micro_batch=4, sweep=True),
    case(dp=2, micro_batch=1, zero_stage=2, layers=2),
    case(dp=2, micro_batch=2, zero_stage=3),
    case(tp=2, micro_batch=8, zero_stage=1),
    case(pp=2, micro_batch=2, zero_stage=1, software=PIPELINE),
    case(dp=2, micro_batch=4, zero_stage=1, hidden=512, layers=2),
)

UNSEEN = (
    case(dp=2, micro_batch=1),
    case(dp=2, micro_batch=2, zero_stage=1),
    case(dp=2, micro_batch=4, zero_stage=2),
    case(dp=2, micro_batch=4, zero_stage=3),
    case(dp=2, micro_batch=4, zero_stage=1, layers=8),
    case(dp=2, micro_batch=2, zero_stage=3, layers=8),
    case(dp=2, micro_batch=4, zero_stage=2, hidden=512),
    case(dp=2, micro_batch=1, zero_stage=0, hidden=384, layers=2),
    case(dp=2, micro_batch=2, zero_stage=1, seq_len=256),
    case(dp=2, micro_batch=4, zero_stage=1, recompute="full"),
    case(tp=2, micro_batch=2, zero_stage=1),
    case(tp=2, micro_batch=4, hidden=512, layers=2),
    case(tp=2, micro_batch=8, software=MEGATRON, zero_stage=1),
    case(tp=2, micro_batch=2, software=MEGATRON, zero_stage=1, layers=8),
    case(pp=2, micro_batch=1, zero_stage=1, software=PIPELINE),
    case(pp=2, micro_batch=2, zero_stage=0, software=PIPELINE, layers=8),
    case(pp=2, micro_batch=4, zero_stage=1, software=PIPELINE, hidden=512),
    case(sp=2, micro_batch=4, zero_stage=1),
    case(sp=2, micro_batch=2, zero_stage=3, hidden=512, layers=2),
    case(dp=1, micro_batch=4),
)
"""Other micro-batches, depths, widths, lengths, stages and axes than those of CALIBRATION."""


def small_space() -> tuple[Resolved, tuple[Case, ...]]:
    """A request with a space of some twenty plans, and each of them."""
    resolved = PlanRequest.parse(
        {
            "model": {"hidden": 256, "layers": 4, "heads": 4, "intermediate": 704, "vocab": 4096},
            "cluster": "local-cpu",
            "training": {"seq_len": 128, "global_batch": 8, "precision": "fp32"},
            "search": {
                "software": ["deepspeed", "deepspeed_pipeline"],
                "allow": {"offload": False, "recompute": False, "chunked_loss": False},
                "limits": {"micro_batch": {"min": 2}, "sp": {"max": 1}},
                "keep": 400,
            },
        }
    ).resolve()
    table = rank(resolved).table
    cases = []
    for row in range(len(table)):
        plan = table.plan(row)
        usual = Plan()
        knobs = " ".join(
            f"{name} {getattr(value, 'name', value)}"
            for name, value in plan
            if value != getattr(usual, name)
        )
        name = f"space {knobs}".replace("micro_batch", "mb").replace("zero_stage", "zero")
        cases.append(Case(name, resolved.model, resolved.training, plan))
    return resolved, tuple(cases)
