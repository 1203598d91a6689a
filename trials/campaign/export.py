"""A campaign's study as a file that optuna-dashboard and Optuna itself open."""

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from planner.request import Resolved
from trials.campaign.choose import rebuilt
from trials.campaign.ranking import objective_scores, trialable
from trials.campaign.state import CampaignState
from trials.campaign.surrogate import believe, calibrated


def export_study(resolved: Resolved, state: CampaignState, path: Path) -> optuna.Study:
    """Writes the study into a new journal file and returns it.

    Values are logarithms of step times, or of the objective; the attribute `source` tells what was
    measured from what the calibrated model predicts. Raises FileExistsError rather than add to a
    file that is there.
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already")
    plans = [ranked.plan for ranked in state.ranking]
    usable = [trial for trial in state.trials if not trial.foreign]
    belief = believe(resolved, state.calibration, plans, usable)
    narrowed = trialable(calibrated(resolved, state.calibration))
    study, _ = rebuilt(narrowed, state, belief, objective_scores(resolved, belief))
    storage = JournalStorage(JournalFileBackend(str(path)))
    made = optuna.create_study(study_name=state.campaign_id, storage=storage, direction="minimize")
    made.add_trials(study.trials)
    return made
