"""The user's own model comes from the worker's configuration, and is held to its contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.trials.conftest import finish, make_trial
from tests.trials.models import decoder
from trials.executors.local import LocalExecutor
from trials.preflight import Refused
from trials.trial_file import TrialFile
from trials.user_model import (
    CONFIG_VARIABLE,
    VARIABLE,
    build_user_model,
    load_maker,
    user_model_name,
)

HERE = "tests.trials.own_models"
TRAINING = TrainingSpec(seq_len=32, global_batch=4, precision="fp32")


def build(name: str, **plan: int) -> torch.nn.Module:
    module, _ = build_user_model(f"{HERE}:{name}", decoder(), TRAINING, Plan(**plan), seed=1)
    return module


def test_without_configuration_there_is_no_model_of_the_user() -> None:
    assert user_model_name({}) is None


def test_the_variable_comes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text('user_model = "from:file"\n', "utf-8")
    assert user_model_name({CONFIG_VARIABLE: str(path)}) == "from:file"
    assert user_model_name({CONFIG_VARIABLE: str(path), VARIABLE: "a:b"}) == "a:b"


def test_a_configuration_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        user_model_name({CONFIG_VARIABLE: str(tmp_path / "missing.toml")})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.trials.own_models", "must be 'module:callable'"),
        ("no_such_module:own", "importing no_such_module failed"),
        (f"{HERE}:missing", "has no missing"),
        (f"{HERE}:not_callable", "is a int, not callable"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        load_maker(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_module", r"must return a torch.nn.Module, not dict"),
        ("takes_nothing", r"must take \(model_spec, training\)"),
        ("no_parameters", "without parameters to train"),
    ],
)
def test_a_callable_of_another_shape_is_refused(name: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        build(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_scalar", r"a scalar loss, not shape \[2, 32, 128\]"),
        ("wrapped", "not Output; return its .loss"),
    ],
)
def test_a_forward_pass_that_returns_no_scalar_is_refused(name: str, message: str) -> None:
    ids = torch.zeros((2, 32), dtype=torch.long)
    with pytest.raises(Refused, match=message):
        build(name)(ids, ids)


@pytest.mark.parametrize("axis", ["pp", "sp", "cp", "ep"])
def test_axes_that_cut_the_trial_models_layers_are_refused(axis: str) -> None:
    with pytest.raises(Refused, match=f"{axis} = 2"):
        build("own", **{axis: 2})


def test_a_trial_file_cannot_name_a_model() -> None:
    whole = make_trial("names-a-model").model_dump()
    with pytest.raises(ValueError, match="user_model"):
        TrialFile.model_validate(whole | {"user_model": f"{HERE}:own"})


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{HERE}:own")
        made = LocalExecutor(tmp_path_factory.mktemp("own"), ranks=2)
        yield made
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_a_worker_trains_the_users_model(stage: int, executor: LocalExecutor) -> None:
    trial = make_trial(f"own-{stage}", dp=2, zero_stage=stage)
    executor.submit(trial)
    result = finish(executor, trial.trial_id)
    assert result.outcome.kind == "ok", result.outcome.message
    assert result.losses[-1] < result.losses[0]
    # the table, the matrix and its bias
    assert result.ranks[0].parameters == 128 * 64 + 64 * 128 + 128
    assert f"{HERE}:own" in result.ranks[0].notes[-2]


@pytest.mark.slow
def test_a_trial_whose_larger_micro_batch_does_not_fit_settles_below(
    executor: LocalExecutor,
) -> None:
    narrow = decoder().model_copy(update={"name": "narrow"})
    options = {
        "adapt_micro_batch": {"patience": 2, "slow_communication_s": 60.0, "worse": 1e9},
        "steps": 12,
        "same_batch": True,
    }
    trial = make_trial("narrow", narrow, trial=options, dp=2, zero_stage=2, global_batch=16)
    trial = TrialFile.model_validate(trial.model_dump())
    executor.submit(trial)
    result = finish(executor, trial.trial_id)
    assert result.outcome.kind == "ok", result.outcome.message
    for rank in result.ranks:
        assert rank.adapted is not None
        assert rank.adapted.settled_on == 2
        assert [s.micro_batch for s in rank.adapted.sizes if s.steps] == [1, 2]
    assert result.losses[-1] < result.losses[0]
