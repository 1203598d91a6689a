"""Each export is loaded by the tool that it is for."""

import argparse
import json
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.export.launch import launch
from planner.export.options import ExportOptions
from planner.export.registry import FORMATS
from planner.export.result import Exported, NotExportable, Planned
from tests.export.plans import PLANS, planned

NASTY = "/data/my models/$(touch pwned); `id` 'x' \"y\" & | > <\\ñ"


def _write(exported: Exported, folder: Path) -> Path:
    for name, content in exported.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / exported.main


def _json(exported: Exported, name: str) -> Any:
    text = exported.files[name]
    assert isinstance(text, str)
    return json.loads(text)


def _all(name: str, options: ExportOptions | None = None) -> dict[str, Exported]:
    out = {}
    for kind, exporter in FORMATS.items():
        try:
            out[kind] = exporter(planned(name, options))
        except NotExportable:
            continue
    return out


# ---- DeepSpeed


@pytest.mark.parametrize("name", [n for n in PLANS if not n.startswith(("megatron", "fsdp"))])
def test_deepspeed_accepts_the_ds_config_at_the_worlds_size(name: str) -> None:
    from tests.check import installed

    config = _json(FORMATS["ds_config"](planned(name)), "ds_config.json")
    plan = PLANS[name]
    world = plan.dp * plan.tp if plan.software.name == "DEEPSPEED" else plan.dp
    assert installed.refusal(config, world) is None


# ---- transformers


@pytest.mark.parametrize("name", ["zero1", "zero2-recompute", "zero3", "autotp", "two-nodes"])
def test_training_arguments_take_the_hf_export_and_resolve_every_auto(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    from planner.export.hf_trainer import auto_table

    one = planned(name)
    exported = FORMATS["hf_trainer"](one)
    path = _write(exported, tmp_path)
    arguments = argparse.Namespace(
        **_json(exported, "training_arguments.json"),
        world_size=one.plan.world_size,
        save_on_each_node=False,
        fp16_full_eval=False,
        bf16_full_eval=False,
        get_warmup_steps=lambda steps: 0,
    )
    config = HfTrainerDeepSpeedConfig(json.loads(path.read_text()))
    config.trainer_config_process(arguments)
    model = argparse.Namespace(config=argparse.Namespace(hidden_size=one.model.hidden))
    config.trainer_config_finalize(arguments, model, 100)
    assert '"auto"' not in json.dumps(config.config)
    for key, becomes, _ in auto_table(one):
        assert config.get_value(key) == becomes, key
    from tests.check import installed

    assert installed.refusal(config.config, one.plan.world_size) is None


def test_transformers_own_training_arguments_are_made_of_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    one = planned("zero3", ExportOptions(output_dir=str(tmp_path / "out")), precision="fp32")
    exported = FORMATS["hf_trainer"](one)
    _write(exported, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    fields = {f.name for f in transformers.TrainingArguments.__dataclass_fields__.values()}
    given = _json(exported, "training_arguments.json")
    assert set(given) <= fields
    from transformers.integrations import HfDeepSpeedConfig

    assert HfDeepSpeedConfig(str(tmp_path / "ds_config_hf.json")).is_zero3()


# ---- Accelerate


@pytest.mark.parametrize("name", ["zero2-offload", "zero3", "two-nodes"])
def test_accelerates_own_loader_takes_the_yaml(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import DeepSpeedPlugin

    one = planned(name)
    path = _write(FORMATS["accelerate"](one), tmp_path)
    config = load_config_from_file(str(path))
    assert config.num_processes == one.plan.world_size
    assert config.num_machines == one.nodes
    assert config.distributed_type.value == "DEEPSPEED"
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", ",".join(config.deepspeed_config))
    monkeypatch.chdir(tmp_path)
    plugin = DeepSpeedPlugin(hf_ds_config=config.deepspeed_config["deepspeed_config_file"])
    assert plugin.zero_stage == one.plan.zero_stage


# ---- Megatron


def _parser(flags: dict[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for flag, kind in flags.items():
        if kind is bool:
            parser.add_argument(flag, action="store_true")
        elif isinstance(kind, list):
            parser.add_argument(flag, choices=kind)
        else:
            parser.add_argument(flag, type=kind)
    return parser


BOTH: dict[str, Any] = {
    "--num-layers": int, "--hidden-size": int, "--ffn-hidden-size": int,
    "--num-attention-heads": int, "--kv-channels": int, "--seq-length": int,
    "--max-position-embeddings": int, "--swiglu": bool, "--disable-bias-linear": bool,
    "--untie-embeddings-and-output-weights": bool, "--attention-dropout": float,
    "--hidden-dropout": float, "--make-vocab-size-divisible-by": int,
    "--tensor-model-parallel-size": int, "--pipeline-model-parallel-size": int,
    "--sequence-parallel": bool, "--micro-batch-size": int, "--global-batch-size": int,
    "--lr": float, "--min-lr": float,
    "--lr-decay-style": ["constant", "linear", "cosine", "inverse-square-root"],
    "--weight-decay": float, "--clip-grad": float, "--train-iters": int, "--bf16": bool,
    "--fp16": bool,
}  # fmt: skip
MEGATRON_LM: dict[str, Any] = BOTH | {
    "--use-mcore-models": bool, "--group-query-attention": bool, "--num-query-groups": int,
    "--normalization": ["LayerNorm", "RMSNorm"], "--add-qkv-bias": bool,
    "--position-embedding-type": ["learned_absolute", "rope", "mrope", "relative", "none"],
    "--context-parallel-size": int, "--decoder-first-pipeline-num-layers": int,
    "--decoder-last-pipeline-num-layers": int, "--num-layers-per-virtual-pipeline-stage": int,
    "--use-distributed-optimizer": bool, "--overlap-grad-reduce": bool,
    "--overlap-param-gather": bool, "--recompute-granularity": ["full", "selective"],
    "--recompute-method": ["uniform", "block"], "--recompute-num-layers": int,
    "--accumulate-allreduce-grads-in-fp32": bool,
    "--attention-backend": ["flash", "fused", "unfused", "local", "auto"],
    "--num-experts": int, "--moe-router-topk": int, "--moe-ffn-hidden-size": int,
    "--expert-model-parallel-size": int, "--moe-shared-expert-intermediate-size": int,
    "--moe-token-dispatcher-type": ["allgather", "alltoall", "flex"], "--moe-grouped-gemm": bool,
    "--moe-router-load-balancing-type": ["aux_loss", "sinkhorn", "none"],
    "--moe-aux-loss-coeff": float, "--moe-expert-capacity-factor": float,
    "--moe-pad-expert-input-to-capacity": bool, "--pipeline-model-parallel-layout": str,
}  # fmt: skip
MEGATRON_DEEPSPEED: dict[str, Any] = BOTH | {
    "--num-key-value-heads": int, "--normalization": ["layernorm", "rmsnorm"],
    "--use-rotary-position-embeddings": bool, "--no-pipeline-parallel": bool,
    "--ds-sequence-parallel-size": int, "--num-experts": int, "--topk": int,
    "--moe-expert-parallel-size": int, "--create-moe-param-group": bool,
    "--moe-train-capacity-factor": float, "--deepspeed": bool, "--deepspeed_config": str,
    "--zero-stage": int, "--deepspeed-activation-checkpointing": bool,
    "--checkpoint-activations": bool, "--checkpoint-num-layers": int,
    "--partition-activations": bool, "--checkpoint-in-cpu": bool, "--cpu-optimizer": bool,
    "--use-flash-attn-v2": bool, "--use-flash-attn": bool,
}  # fmt: skip
"""Flags as their projects' arguments.py documents them."""


def _sourced(path: Path) -> list[str]:
    script = '. "$1"; printf "%s\\0" "${MEGATRON_ARGS[@]}"'
    command = ["bash", "-c", script, "bash", str(path)]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return out.rstrip("\0").split("\0")


@pytest.mark.parametrize(
    ("name", "kind", "flags"),
    [
        ("megatron", "megatron_lm", MEGATRON_LM),
        ("megatron-uneven", "megatron_lm", MEGATRON_LM),
        ("megatron-placed", "megatron_lm", MEGATRON_LM),
        ("megatron-deepspeed", "megatron_deepspeed", MEGATRON_DEEPSPEED),
    ],
)
def test_a_parser_of_the_documented_flags_takes_the_arguments(
    name: str, kind: str, flags: dict[str, Any], tmp_path: Path
) -> None:
    one = planned(name)
    given = _sourced(_write(FORMATS[kind](one), tmp_path))
    read = _parser(flags).parse_args(given)
    plan = one.plan
    assert read.tensor_model_parallel_size == plan.tp
    assert read.pipeline_model_parallel_size == plan.pp
    assert read.num_layers == one.model.layers
    assert read.global_batch_size == plan.global_batch
    if plan.vpp > 1:
        per = read.num_layers_per_virtual_pipeline_stage
        assert per * plan.vpp * plan.pp == one.model.layers
    if plan.first_stage_layers:
        ends = read.decoder_first_pipeline_num_layers + read.decoder_last_pipeline_num_layers
        assert (one.model.layers - ends) % (plan.pp - 2) == 0
    if plan.placement:
        # Megatron-Core 0.16.1 reads this as stages of 3 and 1 decoder layers
        assert read.pipeline_model_parallel_layout == "Ettt|tL"


def test_the_megatron_deepspeed_config_has_no_auto() -> None:
    exported = FORMATS["megatron_deepspeed"](planned("megatron-deepspeed"))
    assert "auto" not in json.dumps(_json(exported, "ds_config.json"))


# ---- scripts


@pytest.mark.parametrize("model_path", ["./model", NASTY])
@pytest.mark.parametrize("name", PLANS)
def test_bash_and_shellcheck_pass_every_script(name: str, model_path: str, tmp_path: Path) -> None:
    for exported in _all(name, ExportOptions(model_path=model_path)).values():
        _write(exported, tmp_path)
    scripts = [*tmp_path.glob("*.sh"), *tmp_path.glob("*.sbatch")]
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
    shellcheck = [str(Path(sys.executable).parent / "shellcheck"), "-x", "-s", "bash"]
    if model_path == NASTY:
        shellcheck += ["-e", "SC2016"]  # that dollars in quotes do not expand is the point
    checked = subprocess.run(
        [*shellcheck, *map(str, scripts)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def _stubs(folder: Path, names: list[str]) -> Path:
    """Commands that print their arguments, one a line."""
    folder.mkdir()
    for name in names:
        stub = folder / name
        stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        stub.chmod(0o755)
    (folder / "scontrol").write_text("#!/bin/sh\necho node-0\n")
    (folder / "scontrol").chmod(0o755)
    (folder / "srun").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (folder / "srun").chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "script", ["launch_deepspeed.sh", "launch_torchrun.sh", "launch_accelerate.sh", "job.sbatch"]
)
def test_a_users_string_arrives_as_one_argument_and_runs_nothing(
    script: str, tmp_path: Path
) -> None:
    one = planned("two-nodes", ExportOptions(model_path=NASTY))
    for exported in (launch(one), FORMATS["environment"](one)):
        _write(exported, tmp_path)
    stubs = _stubs(tmp_path / "bin", ["deepspeed", "torchrun", "accelerate"])
    environment = {
        "PATH": f"{stubs}:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "node-[0-1]",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "1",
    }
    command = ["bash", str(tmp_path / script), *(["1"] if script.startswith("launch_t") else [])]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert NASTY in ran.stdout.splitlines()
    assert not (tmp_path / "pwned").exists()


def test_the_node_number_is_read_on_the_node(tmp_path: Path) -> None:
    text = launch(planned("two-nodes")).files["job.sbatch"]
    assert isinstance(text, str)
    inner = re.search(r"bash -c '([^']*)'", text)
    assert inner is not None
    assert '--node_rank "$SLURM_NODEID"' in inner.group(1)
    assert "scontrol show hostnames" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_name", "x\n#SBATCH --wrap=id"),
        ("partition", "a b"),
        ("model_path", "a\nb"),
        ("hosts", ("a;b",)),
        ("namespace", "x: y"),
        ("account", "$(id)"),
    ],
)
def test_names_that_go_into_directives_are_refused_unless_plain(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        ExportOptions(**{field: value})


# ---- Kubernetes


@pytest.mark.parametrize("name", ["two-nodes", "pipeline", "megatron"])
def test_the_train_job_is_the_typed_object(name: str, tmp_path: Path) -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models")
    one = planned(name, ExportOptions(model_path=NASTY))
    text = launch(one).files["trainjob.yaml"]
    assert isinstance(text, str)
    job = models.TrainerV1alpha1TrainJob.from_dict(yaml.safe_load(text))
    assert job.spec.trainer.num_nodes == one.nodes
    assert job.spec.trainer.num_proc_per_node == one.gpus_per_node
    given = yaml.safe_load(text)
    assert job.to_dict()["spec"]["trainer"] == given["spec"]["trainer"]


# ---- the rest


def test_the_environment_sets_only_variables_that_something_reads() -> None:
    read = re.compile(
        r"(NCCL_(DEBUG|IB_DISABLE)|TORCH_NCCL_(ASYNC_ERROR_HANDLING|DUMP_ON_TIMEOUT)|"
        r"TORCH_FR_BUFFER_SIZE|PYTORCH_(CUDA_)?ALLOC_CONF|DEEPSPEED_TIMEOUT|"
        r"CUDA_DEVICE_MAX_CONNECTIONS|FI_PROVIDER|FI_EFA_USE_DEVICE_RDMA|OMP_NUM_THREADS)\Z"
    )
    for name in PLANS:
        text = FORMATS["environment"](planned(name)).files["env.sh"]
        assert isinstance(text, str)
        lines = text.splitlines()
        for i, line in enumerate(lines):
            if line.startswith("export "):
                assert read.match(line.split()[1].split("=")[0]), line
                assert lines[i - 1].startswith("# "), "every variable has its reason"


@pytest.mark.parametrize("kind", ["llama_factory", "axolotl"])
def test_the_trainers_yaml_points_at_the_config_and_agrees_with_it(kind: str) -> None:
    one = planned("zero2-recompute")
    exported = FORMATS[kind](one)
    text = exported.files[exported.main]
    assert isinstance(text, str)
    values = yaml.safe_load(text)
    assert values["deepspeed"] in exported.files
    micro = "micro_batch_size" if kind == "axolotl" else "per_device_train_batch_size"
    assert values[micro] == one.plan.micro_batch
    assert values["gradient_accumulation_steps"] == one.plan.grad_accum


@pytest.mark.parametrize("name", PLANS)
def test_the_bundle_holds_what_the_plan_needs_and_a_readme_with_the_prediction(name: str) -> None:
    content = FORMATS["bundle"](planned(name)).files["bundle.zip"]
    assert isinstance(content, bytes)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = {n.split("/", 1)[1] for n in archive.namelist()}
        readme = archive.read("meshwright/README.md").decode()
    assert {"README.md", "plan.json", "env.sh", "requirements.txt", "job.sbatch"} <= names
    assert "Step time" in readme
    assert "| forward_backward |" in readme
    for script in re.findall(r"`\./(\S+\.sh)`", readme):
        assert script in names


def test_the_same_plan_gives_the_same_bundle() -> None:
    one, other = (FORMATS["bundle"](planned("zero3")).files["bundle.zip"] for _ in range(2))
    assert one == other


def test_a_format_says_which_plans_it_is_for() -> None:
    with pytest.raises(NotExportable, match="deepspeed plans; this one is for megatron"):
        FORMATS["accelerate"](planned("megatron"))


def test_the_checker_finds_no_error_in_any_exported_config() -> None:
    from planner.check import check

    for name, plan in PLANS.items():
        if "ds_config" not in _all(name):
            continue
        one: Planned = planned(name)
        config = FORMATS["ds_config"](one).files["ds_config.json"]
        assert isinstance(config, str)
        software = plan.software.name.lower()
        facts = {"pp": plan.pp, "tp": plan.tp, "sp": plan.sp}
        report = check(config, software=software, world_size=plan.world_size, facts=facts)
        wrong = [f for f in report.findings if f.severity == "error"]
        assert not wrong, (name, wrong)
        assert report.engine_accepts
