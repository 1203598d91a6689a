"""What a reader of a campaign's state must know beside its figures."""

from planner.request import Resolved
from trials.campaign.state import CampaignState
from trials.preflight import SUPPORTED


def notes(resolved: Resolved, state: CampaignState) -> tuple[str, ...]:
    """What a reader of the state must know."""
    found = []
    proxies = [t for t in state.trials if t.proxy is not None]
    if proxies:
        found.append(
            f"{len(proxies)} trials were proxies: smaller runs whose times go into the "
            "calibration; the full plans are predicted by the calibrated model, not measured"
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


def _left_out(resolved: Resolved) -> list[str]:
    names = [s.name.lower() for s in resolved.search.software if s not in SUPPORTED]
    return [f"trials do not run {', '.join(names)}; its plans are left out"] if names else []
