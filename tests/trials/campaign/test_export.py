from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.trials.campaign.machine import Machine, request
from trials.campaign import CampaignSettings, run
from trials.campaign.export import export_study


def test_the_study_can_be_opened_by_optuna_itself(tmp_path: Path) -> None:
    resolved = request()
    settings = CampaignSettings(max_trials=2, confidence=1.0)
    state = run(resolved, settings, "mine", Machine(resolved, {}))
    path = tmp_path / "study.log"
    export_study(resolved, state, path)
    opened = optuna.load_study(
        study_name="mine", storage=JournalStorage(JournalFileBackend(str(path)))
    )
    sources = [t.user_attrs["source"] for t in opened.trials]
    assert sources.count("measured") == 2
    assert sources.count("predicted") == len(state.ranking) - 2
    assert opened.trials[-1].params["software"] == state.trials[-1].plan.software.name.lower()
    with pytest.raises(FileExistsError, match=r"study\.log"):
        export_study(resolved, state, path)
