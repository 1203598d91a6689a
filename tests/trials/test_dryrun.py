"""The dry run's bytes against arithmetic on the parameters, and what it does with bad input."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cost_model.catalogue import cluster
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.trials.models import decoder
from trials.dryrun.result import DryRunFailure, RankResult
from trials.dryrun.run import dry_run

MODEL = decoder(hidden=512, layers=4, heads=8, kv_heads=8, width=1408, vocab=32000)
TRAINING = TrainingSpec(seq_len=512, global_batch=8)
SLACK = 0.01


def run(**plan: object) -> RankResult:
    chosen = Plan.model_validate({"dp": 8, "reduce_bucket": 1_000_000} | plan)
    return dry_run(MODEL, cluster("dgx-a100-80g", 1), TRAINING, chosen).worst


@pytest.mark.slow
def test_zero_2_holds_two_bytes_a_parameter_and_twelve_over_the_ranks() -> None:
    found = run(zero_stage=2)
    assert found.parameters == MODEL.params
    assert found.steady_bytes == pytest.approx((2 + 12 / 8) * MODEL.params, rel=SLACK)


@pytest.mark.slow
def test_an_offloaded_optimizer_is_in_host_memory_and_not_on_the_gpu() -> None:
    found = run(zero_stage=2, offload_optimizer="cpu")
    # The engine keeps one gradient of the largest parameter, the token table, to copy from.
    staging = 2 * MODEL.vocab * MODEL.hidden
    assert found.steady_bytes == pytest.approx(2 * MODEL.params + staging, rel=SLACK)
    host = max(m.total_bytes for m in found.host)
    assert host >= 12 / 8 * MODEL.params


@pytest.mark.slow
def test_recompute_of_everything_keeps_less_than_none() -> None:
    kept = {rc: run(zero_stage=2, recompute=rc).phase_peak("forward") for rc in ("none", "full")}
    assert kept["full"] < kept["none"]


@pytest.mark.slow
def test_a_stage_of_megatron_recomputes_as_its_arguments_say_though_the_config_does_not() -> None:
    stage = {"pp": 2, "tp": 2, "dp": 2, "zero_stage": 1, "software": "megatron_deepspeed"}
    plan = stage | {"sequence_parallel": True, "grad_accum": 4}
    kept = {rc: activations(run(**plan, recompute=rc)) for rc in ("none", "full")}
    assert kept["full"] < kept["none"] / 3


@pytest.mark.slow
def test_a_config_that_the_engine_refuses_says_what_it_refused() -> None:
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 2, "no_such_key": 1}}
    with pytest.raises(DryRunFailure, match="no_such_key") as failure:
        dry_run(
            MODEL,
            cluster("dgx-a100-80g", 1),
            TRAINING,
            Plan(dp=8, zero_stage=2),
            config=config,
        )
    assert failure.value.kind == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "kind"),
    [({"time_limit_s": 0.5}, "timeout"), ({"wanted": lambda: False}, "cancelled")],
)
def test_a_run_that_is_ended_leaves_no_process_and_no_file(
    ending: dict[str, Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(DryRunFailure) as failure:
        dry_run(MODEL, cluster("dgx-a100-80g", 1), TRAINING, Plan(dp=8), **ending)
    assert failure.value.kind == kind
    assert list(tmp_path.iterdir()) == []
    assert not [line for line in command_lines() if str(tmp_path) in line]


def command_lines() -> list[str]:
    """Of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text("utf-8", errors="replace"))
    return found


@pytest.mark.slow
def test_an_optimizer_on_nvme_passes_through_four_buffers_in_host_memory() -> None:
    found = run(zero_stage=3, offload_optimizer="nvme")
    # On the GPU two bytes a parameter over eight ranks, and what is too small to be cut.
    assert found.steady_bytes == pytest.approx(2 * MODEL.params / 8, rel=0.3)
    # The exported config's buffer_count, each of the largest sub-group (here all) in fp32.
    assert max(m.total_bytes for m in found.host) >= 4 * 4 * MODEL.params / 8


@pytest.mark.slow
def test_a_thousand_ranks_hold_a_thousandth_each() -> None:
    plan = Plan(dp=1024, nodes=128, zero_stage=3, reduce_bucket=1_000_000)
    training = TrainingSpec(seq_len=512, global_batch=1024)
    found = dry_run(MODEL, cluster("dgx-a100-80g", 128), training, plan).worst
    cut = MODEL.params - 9 * MODEL.hidden
    # 2 + 12 bytes of each matrix over the ranks, 2 of each norm whole; the reduce bucket.
    state = 14 * cut / 1024 + 14 * 9 * MODEL.hidden / 1024 + 2 * 9 * MODEL.hidden
    assert found.steady_bytes == pytest.approx(state + 2 * 1_000_000, rel=0.1)


@pytest.mark.slow
def test_autotp_fills_the_gpu_at_init_with_the_cut_model_and_its_flat_copy() -> None:
    found = run(tp=4, nodes=4, zero_stage=1)
    table = 2 * MODEL.vocab * MODEL.hidden  # token table and head stay whole
    norms = 9 * MODEL.hidden
    held = table + norms + (MODEL.params - table - norms) / 4
    assert found.phase_peak("init") == pytest.approx(2 * 2 * held, rel=SLACK)
    peak = max(m.categories.get("logits", 0) for m in found.gpu if m.phase == "backward")
    assert peak >= 8 * 512 * MODEL.vocab


@pytest.mark.slow
def test_partitioned_activations_keep_a_share_of_each_layers_input() -> None:
    plan = {"dp": 2, "tp": 4, "zero_stage": 1, "software": "megatron_deepspeed"}
    whole = run(**plan, recompute="full")
    shared = run(**plan, recompute="full", partition_activations=True)
    inputs = MODEL.layers * 512 * MODEL.hidden * 2
    saved = activations(whole) - activations(shared)
    assert saved == pytest.approx(inputs * 3 / 4, rel=0.2)


def activations(found: RankResult) -> int:
    return max(m.categories["activations"] for m in found.gpu if m.phase == "forward")


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"dp": 2, "pp": 2}, "deepspeed_pipeline or megatron_deepspeed"),
        ({"dp": 2, "software": "fsdp"}, "not fsdp"),
        ({"tp": 3}, "8 attention heads cannot be cut over tp x sp = 3 ranks"),
        ({"dp": 4, "ep": 2}, "needs a model with experts"),
        ({"dp": 8, "zero_stage": 3, "quantized_weights": True}, "compiled kernels"),
        ({"pp": 5, "software": "deepspeed_pipeline"}, "4 layers cannot be cut into 5 stages"),
    ],
)
def test_what_a_dry_run_cannot_do_is_said_before_a_process_is_started(
    plan: dict[str, object], reason: str
) -> None:
    with pytest.raises(DryRunFailure, match=reason) as failure:
        dry_run(MODEL, cluster("dgx-a100-80g", 1), TRAINING, Plan.model_validate(plan))
    assert failure.value.kind == "unsupported"


def test_what_the_service_imports_of_trials_loads_no_torch() -> None:
    code = (
        "import sys, trials.dryrun.run, trials.executors.local, trials.executors.slurm, "
        "trials.result, trials.microbatch, api.cli.main; "
        "sys.exit('torch' in sys.modules or 'deepspeed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
