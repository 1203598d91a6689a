"""The command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from api.cli.main import app
from cost_model import catalogue
from cost_model.calibration.cluster import FACTORS, ClusterCalibration, uncalibrated

REQUEST = [
    "--model", "llama-2-13b", "--cluster", "dgx-a100-80g", "--nodes", "1",
    "--seq-len", "4096", "--global-batch", "256",
]  # fmt: skip


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_plan_prints_a_ranking() -> None:
    done = _run("plan", *REQUEST)
    assert done.exit_code == 0, done.output
    assert "llama-2-13b (13.02 B parameters) on 8 x" in done.output.replace("\n", " ")
    assert "zero" in done.output


def test_plan_prints_json_of_every_plan_kept() -> None:
    done = _run("plan", *REQUEST, "--json", "--keep", "7")
    found = json.loads(done.output)
    assert [c["rank"] for c in found["candidates"]] == list(range(1, 8))
    assert found["certificate"]["fitting"] >= 7


def test_plan_obeys_knobs_limits_and_what_is_forbidden() -> None:
    done = _run(
        "plan", *REQUEST, "--json", "--fix", "zero_stage=2", "--limit", "micro_batch=2..4",
        "--forbid", "offload", "--software", "deepspeed",
    )  # fmt: skip
    plans = [c["plan"] for c in json.loads(done.output)["candidates"]]
    assert plans
    assert {p["zero_stage"] for p in plans} == {2}
    assert {p["micro_batch"] for p in plans} <= {2, 4}
    assert {p["offload_optimizer"] for p in plans} == {"none"}


def test_predict_fills_in_the_degrees_that_follow() -> None:
    done = _run("predict", *REQUEST, "--zero-stage", "3", "--tp", "2", "--json")
    plan = json.loads(done.output)["candidate"]["plan"]
    assert (plan["tp"], plan["dp"], plan["grad_accum"]) == (2, 4, 64)


def test_predict_of_a_plan_that_breaks_a_rule_fails_and_says_why() -> None:
    knobs = ("--software", "deepspeed", "--pp", "2", "--zero-stage", "2")
    told = CliRunner().invoke(app, ["predict", *REQUEST, *knobs, "--json"])
    assert told.exit_code == 1
    broken = json.loads(told.stdout)["violations"]
    assert broken
    assert all(f"[{v['rule']}] {v['message']}" in told.stderr for v in broken)
    table = CliRunner().invoke(app, ["predict", *REQUEST, *knobs])
    assert table.exit_code == 1
    assert "Prediction" in table.stdout
    assert table.stderr == told.stderr


def test_predict_agrees_with_the_ranking() -> None:
    best = json.loads(_run("plan", *REQUEST, "--json", "--keep", "1").output)["candidates"][0]
    flags: list[str] = []
    for name, value in best["plan"].items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif name != "nodes":
            flags += [f"--{flag}", str(value)]
    one = json.loads(_run("predict", *REQUEST, *flags, "--json").output)["candidate"]
    assert one["plan"] == best["plan"]
    assert one["step"]["seconds"] == pytest.approx(best["step"]["seconds"])


def test_export_writes_the_config_of_the_best_plan(tmp_path: Path) -> None:
    target = tmp_path / "ds_config.json"
    done = _run("export", *REQUEST, "--output", str(target))
    assert done.exit_code == 0, done.output
    config = json.loads(target.read_text())
    best = json.loads(_run("plan", *REQUEST, "--json", "--keep", "1").output)["candidates"][0]
    assert config["zero_optimization"]["stage"] == best["plan"]["zero_stage"]


def test_export_of_a_plan_given_by_its_knobs() -> None:
    done = _run("export", *REQUEST, "--zero-stage", "1", "--micro-batch", "2")
    config = json.loads(done.output)
    assert config["zero_optimization"]["stage"] == 1
    assert config["train_micro_batch_size_per_gpu"] == 2
    assert config["gradient_accumulation_steps"] == 16


def test_a_config_json_can_be_given_as_a_file(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    done = _run("plan", "--model", str(path), *REQUEST[2:], "--json", "--keep", "1")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--model", "llama-2-13", *REQUEST[2:]], ["--model", "llama-2-13b"]),
        (["plan", *REQUEST[:2], "--cluster", "dgx-z", *REQUEST[4:]], ["--cluster", "dgx-"]),
        (["plan", *REQUEST, "--seq-len", "8192"], ["--seq-len", "4096"]),
        (["plan", *REQUEST, "--precision", "fp12"], ["--precision", "bf16"]),
        (["plan", *REQUEST, "--fix", "zero"], ["--fix", "name=value"]),
        (["plan", *REQUEST, "--limit", "tp=a..b"], ["--limit", "tp=1..4"]),
        (["plan", *REQUEST, "--tokens", "many"], ["--tokens", "integer"]),
        (["plan", *REQUEST, "--around", "zero=3"], ["--around", "zero_stage"]),
        (["why-not", *REQUEST], ["--tp 8"]),
        (["plan", "--model", "/none.json", *REQUEST[2:]], ["--model", "cannot be read"]),
        (["predict", *REQUEST, "--zero-stage", "4"], ["zero", "3"]),
        (["export", *REQUEST, "--recompute", "some"], ["recompute", "none, selective, full"]),
    ],
)
def test_an_error_names_the_option_and_what_would_do(
    arguments: list[str], words: list[str]
) -> None:
    done = _run(*arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    for word in words:
        assert word in done.output


def test_plan_scores_the_users_own_plan_and_other_worlds() -> None:
    done = _run("plan", *REQUEST, "--around", "zero_stage=3", "--what-if", "--keep", "1")
    assert done.exit_code == 0, done.output
    for words in ("Your plan", "the cheapest change first", "Rule of thumb", "With one more node"):
        assert words in done.output
    found = json.loads(_run("plan", *REQUEST, "--around", "zero_stage=3", "--json").output)
    own = found["around"]["candidate"]["plan"]
    assert (own["zero_stage"], own["dp"], own["grad_accum"]) == (3, 8, 32)


def test_why_not_names_the_terms_that_another_plan_loses() -> None:
    done = _run("why-not", *REQUEST, "--tp", "8")
    assert "Why not tp=8: is slower" in done.output
    assert "tensor-parallel traffic" in done.output
    found = json.loads(_run("why-not", *REQUEST, "--tp", "8", "--json").output)
    lost = found["seconds_lost_by_term"]
    assert max(lost, key=lambda name: lost[name]) == "tp_comm"
    assert "heads-tp" in _run("why-not", *REQUEST, "--tp", "3").output


def test_any_field_of_a_request_can_be_set_by_its_path() -> None:
    fields = ["--field", "training.matmul_precision=fp8", "--field", "cluster.preset=dgx-h100"]
    plain = json.loads(_run("predict", *REQUEST, *fields[2:], "--zero-stage", "3", "--json").output)
    fast = json.loads(_run("predict", *REQUEST, *fields, "--zero-stage", "3", "--json").output)
    seconds = [f["candidate"]["step"]["parts"]["compute"] for f in (plain, fast)]
    assert seconds[1] < 0.9 * seconds[0]
    one = json.loads(
        _run("predict", *REQUEST, "--gpus-per-node", "1", "--zero-stage", "3", "--json").output
    )
    assert one["candidate"]["gpus"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["training.matmul=fp8"], ["--field training.matmul", "matmul_precision"]),
        (["training.seq_len.x=1"], ["--field", "seq_len is 4096"]),
        (["matmul_precision"], ["--field", "path=value"]),
        (["training.dropout=0.1", "training.dropout=0.2"], ["--field", "give it once"]),
    ],
)
def test_a_field_that_cannot_be_set_is_named(fields: list[str], words: list[str]) -> None:
    given = [word for field in fields for word in ("--field", field)]
    done = _run("predict", *REQUEST, *given)
    assert done.exit_code == 2, done.output
    for word in words:
        assert word in done.output


def test_double_quantised_constants_take_less_memory() -> None:
    """QLoRA, arXiv 2305.14314, section 3: 0.127 bits a weight instead of 0.5, of 13.0 billion
    weights less the embeddings and the head that stay in 16 bits."""
    held = [
        json.loads(_run("predict", *REQUEST, method, "--gpus-per-node", "1", "--json").output)
        for method in ("--qlora", "--double-quantized")
    ]
    plain, doubled = (one["candidate"]["memory"]["total_bytes"] for one in held)
    assert (plain - doubled) / ((0.5 - 0.127) / 8 * 12.69e9) == pytest.approx(1, rel=0.05)


def test_models_and_hardware_are_listed() -> None:
    assert "llama-2-13b" in _run("models").output
    names = {c["preset"] for c in json.loads(_run("hardware", "--json").output)["clusters"]}
    assert "dgx-a100-80g" in names


def test_a_bad_setting_stops_serve_with_its_name() -> None:
    done = CliRunner(env={"MESHWRIGHT_PORT": "http"}).invoke(app, ["serve"])
    assert done.exit_code == 2
    assert "MESHWRIGHT_PORT" in done.output


def _modules_after(code: str) -> Any:
    script = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_service_and_the_command_line_start_without_torch() -> None:
    loaded = _modules_after(
        "import api.cli.main, api.app, api.search_process.answers; api.app.create_app()"
    )
    assert not {"torch", "deepspeed", "transformers"} & set(loaded)


def test_a_search_process_starts_without_the_web_and_job_frameworks() -> None:
    loaded = _modules_after("import api.search_process.answers")
    assert not {"fastapi", "dbos", "sqlalchemy"} & set(loaded)


def test_export_writes_other_formats_as_a_file_or_a_folder(tmp_path: Path) -> None:
    knobs = ["--zero-stage", "3", "--recompute", "full"]
    one = _run("export", *REQUEST, *knobs, "--format", "launch", "--set", "job_name=mine")
    assert one.exit_code == 0, one.output
    assert "mine" in one.output or "torchrun" in one.output or "deepspeed" in one.output
    done = _run("export", *REQUEST, *knobs, "--format", "launch", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) > 1
    bundle = tmp_path / "plan.zip"
    done = _run("export", *REQUEST, *knobs, "--format", "bundle", "--output", str(bundle))
    assert done.exit_code == 0, done.output
    assert bundle.read_bytes()[:2] == b"PK"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "trainer"], ["--format", "hf_trainer"]),
        (["--format", "megatron_lm", "--zero-stage", "3"], ["--format", "megatron"]),
        (["--format", "launch", "--set", "job=x"], ["job"]),
        (["--format", "bundle"], ["--output"]),
    ],
)
def test_an_export_that_cannot_be_says_why(arguments: list[str], words: list[str]) -> None:
    done = _run("export", *REQUEST, "--zero-stage", "2", *arguments)
    assert done.exit_code == 2, done.output
    for word in words:
        assert word in done.output


TINY = [
    "--cluster", "local-cpu", "--seq-len", "32", "--global-batch", "4", "--precision", "fp32",
]  # fmt: skip


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Options of a request whose plans train in a blink on two processors."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 64,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return ["--model", str(path), *TINY]


def test_a_calibration_file_goes_into_predictions_of_its_cluster_alone(
    tmp_path: Path, tiny: list[str]
) -> None:
    known = uncalibrated(catalogue.cluster("local-cpu", 1))
    slow = [-1.0 if name in {"gemm", "memory"} else 0.0 for name in FACTORS]
    path = tmp_path / "cpu.json"
    path.write_text(known.model_copy(update={"log_factors": tuple(slow)}).model_dump_json())
    plain = json.loads(_run("predict", *tiny, "--zero-stage", "1", "--json").output)
    knobs = ["--zero-stage", "1", "--calibration", str(path)]
    told = CliRunner().invoke(app, ["predict", *tiny, *knobs, "--json"])
    slower = json.loads(told.stdout)
    assert slower["candidate"]["step"]["seconds"] > plain["candidate"]["step"]["seconds"]
    assert "calibrated by" in told.stderr
    other = _run("predict", *REQUEST, *knobs)
    assert other.exit_code == 2
    assert "the request's cluster is a100" in other.output
    path.write_text("{}")
    assert "a campaign wrote" in _run("plan", *tiny, "--calibration", str(path)).output


@pytest.mark.slow
def test_a_trial_adapts_its_micro_batch_and_measures_the_load_of_experts(
    tmp_path: Path, tiny: list[str]
) -> None:
    pytest.importorskip("deepspeed")
    config = json.loads(Path(tiny[1]).read_text())
    mixture = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 4}
    Path(tiny[1]).write_text(json.dumps(config | mixture | {"model_type": "mixtral"}))
    done = _run(
        "trial", *tiny, "--name", "one", "--root", str(tmp_path / "trials"), "--dp", "2",
        "--steps", "4", "--adapt", "patience=1", "--adapt", "slow_communication_s=60",
        "--router-bonus", "0.1",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "micro-batch 1 x 2: 1 steps" in done.output
    assert "micro-batch 2 x 1: 3 steps" in done.output
    assert "busiest expert over the mean" in done.output


@pytest.mark.slow
def test_a_campaign_prints_what_it_learned_and_keeps_it(tmp_path: Path, tiny: list[str]) -> None:
    pytest.importorskip("deepspeed")
    path = tmp_path / "cpu.json"
    done = _run(
        "campaign", *tiny, "--name", "one", "--root", str(tmp_path / "trials"), "--ranks", "2",
        "--max-trials", "2", "--steps", "2", "--confidence", "1", "--forbid", "offload",
        "--calibration", str(path),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "\n2/2 " in done.output
    assert "Ranking, as learned" in done.output
    assert "Ended: budget spent. Best: " in done.output
    assert ClusterCalibration.model_validate_json(path.read_text()).n_trials == 2


def test_a_campaign_says_how_far_a_long_trial_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from api.cli import campaign as command
    from tests.trials.campaign.machine import Machine, request
    from trials.campaign import CampaignSettings, begin, propose, submitted
    from trials.step_log import RankSteps

    class Slow(Machine):
        def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
            del trial_id, most
            ranks = enumerate(((4, "step"), (3, "backward")))
            return tuple(RankSteps(rank=r, phase=p, done=d, steps=()) for r, (d, p) in ranks)

    resolved = request()
    state = begin(resolved, CampaignSettings(), "slow", ranks=2)
    state = submitted(state, propose(resolved, state))
    out = Console(width=140, record=True)
    follower = command._Follower(out, Slow(resolved, {}))
    follower(state)
    follower.waits(state)
    assert out.export_text(clear=False) == ""
    monkeypatch.setattr(command, "SILENCE_S", 0.0)
    follower.waits(state)
    assert ": 3 of 7 steps, rank 1 in backward" in out.export_text()


def test_a_campaign_with_a_bad_setting_names_it(tiny: list[str]) -> None:
    done = _run("campaign", *tiny, "--name", "bad", "--sampler", "best")
    assert done.exit_code == 2
    assert "sampler" in done.output
    assert "tpe" in done.output


def test_the_list_of_commands_needs_no_imports_and_no_command_the_frameworks_of_the_service() -> (
    None
):
    code = """
import sys
from api.cli.main import app, COMMANDS
try:
    app(["--help"])
except SystemExit:
    pass
assert not {"numpy", "pydantic"} & set(sys.modules)
for module, _ in COMMANDS.values():
    __import__(module)
found = {"dbos", "sqlalchemy", "fastapi", "torch", "deepspeed"} & set(sys.modules)
assert not found, found
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Predict memory and step time of one plan." in done.stdout


def test_a_mistyped_command_is_told_the_nearest_one() -> None:
    assert "'models'" in _run("modls").output


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["campaign", *REQUEST, "--name", "../../evil"], "--name"),
        (["campaign", *REQUEST, "--name", "x", "--max-trials", "0"], "--max-trials"),
        (["trial", *REQUEST, "--name", "../x"], "--name"),
        (["trial", *REQUEST, "--name", "x", "--steps", "0"], "--steps"),
        (["trial", *REQUEST, "--name", "x", "--timeout-s", "-1"], "--timeout-s"),
        (["trial", *REQUEST, "--name", "x", "--adapt", "largst=3"], "--adapt largst"),
        (["trial", *REQUEST, "--name", "x", "--router-bonus", "-1"], "--router-bonus"),
        (["trial", *REQUEST, "--name", "x", "--router-bonus-over", "mean"], "--router-bonus"),
    ],
)
def test_a_trial_that_cannot_be_named_or_measured_is_refused_by_its_option(
    arguments: list[str], option: str, tmp_path: Path
) -> None:
    done = _run(*arguments, "--root", str(tmp_path / "trials"))
    assert done.exit_code == 2, done.output
    assert f"error: {option}:" in done.output
    assert not list((tmp_path / "trials").glob("*"))


def test_a_command_that_is_terminated_ends_its_trials_first() -> None:
    code = """
import os, signal, time
from api.cli.interrupts import tidy_on_terminate
try:
    with tidy_on_terminate():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
except BaseException:
    print("tidied")
    raise
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (143, "tidied\n"), done.stderr
