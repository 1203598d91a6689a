"""A simpler plan that is as good as the best one, as far as the cost model can tell."""

from collections.abc import Sequence

from cost_model.plans import Plan
from planner.candidate import Candidate

AS_GOOD = 0.01
"""Share of a step below which two predictions do not tell which plan is the faster one."""

EXTRAS = (
    *("offload_optimizer", "offload_param", "recompute", "hpz", "vpp", "partition_activations"),
    *("cpu_checkpointing", "chunked_loss", "compile", "quantized_weights", "quantized_gradients"),
    *("comm_16bit", "cp_all_gather", "capacity_factor", "first_stage_layers"),
)
"""Knobs that a plan is simpler without."""

_PLAIN = Plan()


def extras(plan: Plan) -> frozenset[str]:
    """The knobs beyond the degrees, the ZeRO stage and the batch that a plan turns."""
    return frozenset(name for name in EXTRAS if getattr(plan, name) != getattr(_PLAIN, name))


def simpler(candidates: Sequence[Candidate]) -> str | None:
    """Names the ranked plan with the fewest extras within AS_GOOD of the first; None where that is
    the first itself. It has none that the first has not."""
    if not candidates:
        return None
    best = candidates[0]
    own = extras(best.plan)
    near = [
        (len(extras(one.plan)), one.rank or 0, one)
        for one in candidates[1:]
        if one.step.seconds <= best.step.seconds * (1 + AS_GOOD)
        and one.fits_probability >= best.fits_probability - AS_GOOD
        and extras(one.plan) < own
    ]
    if not near:
        return None
    _, rank, one = min(near, key=lambda item: item[:2])
    slower = 100 * (one.step.seconds / best.step.seconds - 1)
    spared = ", ".join(name for name in EXTRAS if name in own - extras(one.plan))
    return (
        f"Plan {rank} does without {spared} and is {max(slower, 0.0):.1f} % slower than the best, "
        "less than the model can tell apart."
    )
