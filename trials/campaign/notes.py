"""What a reader of a campaign's state must know beside its figures."""

from planner.request import Resolved
from trials.campaign.state import CampaignState
from trials.preflight import SUPPORTED


def notes(resolved: Resolved, state: CampaignState) -> tuple[str, ...]:
    """What a reader of the state must know."""
    found = []
    proxies = [t for t in state.trials if t.proxy is not None]
    if proxies:
        were = "1 trial was a proxy" if len(proxies) == 1 else f"{len(proxies)} trials were proxies"
        found.append(
            f"{were}: smaller runs whose times go into the calibration; the full plans are "
            "predicted by the calibrated model, not measured"
        )
    larger = [r for r in state.ranking if r.plan.world_size > state.ranks]
    if larger and not state.settings.proxies:
        found.append(
            f"{len(larger)} of {len(state.ranking)} plans need more than the {state.ranks} ranks "
            "of the executor and were not tried"
        )
    if any(t.foreign for t in state.trials):
        found.append(
            "trials ran on another device than the cluster's: nothing was learned from them"
        )
    return tuple(found + _left_out(resolved))


def nothing_triable(state: CampaignState) -> str:
    """Why a campaign has no trial to run."""
    least = min(r.plan.world_size for r in state.ranking)
    smaller = "none of them has a smaller run that stands for it"
    if not state.settings.proxies:
        smaller = "smaller runs that stand for them are switched off"
    return (
        f"none of the {len(state.ranking)} best plans can be tried: they take {least} ranks or "
        f"more, the executor has {state.ranks}, and {smaller}"
        if least > state.ranks
        else f"the engine of the trials can run none of the {len(state.ranking)} best plans"
    )


def _left_out(resolved: Resolved) -> list[str]:
    names = [s.name.lower() for s in resolved.search.software if s not in SUPPORTED]
    return [f"trials do not run {', '.join(names)}; its plans are left out"] if names else []
