"""One warm pool of workers for all tests of trials."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cost_model.catalogue import cluster
from cost_model.plans import Plan
from cost_model.specs import Lora, ModelSpec, TrainingSpec
from planner.export import ds_config
from tests.trials.models import decoder
from tests.trials.ssh_hosts import SshHosts, missing
from trials.executors.local import LocalExecutor
from trials.executors.protocol import State
from trials.executors.ssh import SshExecutor, SshSettings
from trials.result import TrialResult
from trials.trial_file import TrialFile


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    executor = LocalExecutor(tmp_path_factory.mktemp("trials"), ranks=4)
    yield executor
    executor.close()


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshExecutor]:
    lacking = missing()
    if lacking or os.geteuid() != 0:
        pytest.skip(f"ssh is not installed here: {', '.join(lacking) or 'not root'}")
    hosts = SshHosts(tmp_path_factory.mktemp("sshd"))
    try:
        hosts.start()
        yield SshExecutor(
            SshSettings(
                root=tmp_path_factory.mktemp("ssh"),
                hosts=("host-1", "host-2"),
                ranks_per_host=1,
                config=hosts.config,
                setup=("export DS_ACCELERATOR=cpu",),
                master_addr="127.0.0.1",
            )
        )
    finally:
        hosts.stop()


def make_trial(
    trial_id: str,
    model: ModelSpec | None = None,
    *,
    precision: str = "fp32",
    seq_len: int = 32,
    global_batch: int = 4,
    lora: Lora | None = None,
    trial: dict[str, Any] | None = None,
    **plan: Any,
) -> TrialFile:
    """A trial of a small model under the exported config."""
    model = model or decoder()
    chosen = Plan(**plan)
    accum = global_batch // (chosen.dp * chosen.micro_batch)
    chosen = chosen.model_copy(update={"grad_accum": accum})
    training = TrainingSpec(
        seq_len=seq_len,
        global_batch=global_batch,
        precision=precision,  # type: ignore[arg-type]
        attention="sdpa",
        lora=lora,
    )
    config = ds_config(model, cluster("dgx-a100-80g", 1), training, chosen)
    options = {"warmup_steps": 1, "steps": 2, "same_batch": True, "timeout_s": 120}
    return TrialFile(
        trial_id=trial_id,
        model=model,
        training=training,
        plan=chosen,
        ds_config=config,
        **(options | (trial or {})),
    )


def finish(executor: Any, trial_id: str, limit_s: float = 150) -> TrialResult:
    """Waits for the result."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if executor.state(trial_id) is State.ENDED:
            result: TrialResult | None = executor.result(trial_id)
            assert result is not None
            return result
        time.sleep(0.02)
    raise TimeoutError(executor.logs(trial_id)[-3000:])


@pytest.fixture
def train(local: LocalExecutor) -> Callable[..., TrialResult]:
    def run(trial_id: str, *args: Any, **kwargs: Any) -> TrialResult:
        local.submit(make_trial(trial_id, *args, **kwargs))
        return finish(local, trial_id)

    return run
