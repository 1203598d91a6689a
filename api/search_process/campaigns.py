"""One turn of a campaign inside a search process: the numbers of a step, no trial."""

from typing import Any

from planner.request import PlanRequest

Message = dict[str, Any]


def turn(message: Message) -> Message:
    """The answer to one turn.

    A message without a state begins a campaign: `settings`, `campaign_id`, `ranks`, `known`. One
    with a state learns from `results` and proposes what to try next. The answer has the state
    with the proposed trials as pending, and their files.
    """
    from api.calibrated import read
    from trials.campaign import CampaignSettings, CampaignState, begin, learn, propose, submitted
    from trials.result import TrialResult

    resolved = PlanRequest.parse(message["request"]).resolve()
    if message["state"] is None:
        state = begin(
            resolved,
            CampaignSettings.model_validate(message["settings"]),
            message["campaign_id"],
            ranks=message["ranks"],
            known=read(message["known"]),
        )
    else:
        results = {n: TrialResult.model_validate(r) for n, r in message["results"].items()}
        state = learn(resolved, CampaignState.model_validate(message["state"]), results)
    files = propose(resolved, state)
    state = submitted(state, files)
    return {
        "state": state.model_dump(mode="json"),
        "files": [file.model_dump(mode="json") for file in files],
    }
