"""The config for HF Trainer: "auto" where Trainer resolves it, and the arguments it takes."""

import json
from typing import Any

from cost_model.plans import Recompute, Software
from planner.export.ds_config import ds_config
from planner.export.result import Exported, NotExportable, Planned

CONFIG = "ds_config_hf.json"
ARGUMENTS = "training_arguments.json"
TABLE = "auto.md"


def hf_config(planned: Planned) -> dict[str, Any]:
    """The ds_config with "auto" for what TrainingArguments also say.

    Buckets stay numbers where Trainer's own choice (from hidden_size) would be another plan.
    """
    planned.only("hf_trainer", Software.DEEPSPEED)
    if planned.plan.ep > 1:
        raise NotExportable(
            "hf_trainer cannot express expert parallelism: ep needs DeepSpeed's MoE layers in code"
        )
    config = ds_config(planned.model, planned.cluster, planned.training, planned.plan)
    for key in (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
    ):
        config[key] = "auto"
    for name in ("bf16", "fp16"):
        if name in config:
            config[name]["enabled"] = "auto"
    params = config.get("optimizer", {}).get("params", {})
    if config.get("optimizer", {}).get("type") in ("Adam", "AdamW"):
        for name in ("lr", "betas", "eps", "weight_decay"):
            params[name] = "auto"
    zero = config["zero_optimization"]
    for key, resolved in _hidden_sizes(planned).items():
        if zero.get(key) == resolved:
            zero[key] = "auto"
    return config


def _hidden_sizes(planned: Planned) -> dict[str, int]:
    """What Trainer makes of "auto" bucket sizes (transformers integrations/deepspeed.py)."""
    square = planned.model.hidden**2
    sizes = {"reduce_bucket_size": square}
    if planned.plan.zero_stage == 3:
        sizes["stage3_prefetch_bucket_size"] = int(0.9 * square)
        sizes["stage3_param_persistence_threshold"] = 10 * planned.model.hidden
    return sizes


def training_arguments(planned: Planned) -> dict[str, Any]:
    """TrainingArguments that go with the config."""
    plain = ds_config(planned.model, planned.cluster, planned.training, planned.plan)
    params = plain.get("optimizer", {}).get("params", {})
    betas = params.get("betas", [0.9, 0.999])
    arguments: dict[str, Any] = {
        "output_dir": planned.options.output_dir,
        "per_device_train_batch_size": planned.plan.micro_batch,
        "gradient_accumulation_steps": planned.plan.grad_accum,
        "bf16": planned.training.precision == "bf16",
        "fp16": planned.training.precision == "fp16",
        "max_grad_norm": plain["gradient_clipping"],
        "learning_rate": params.get("lr", 1e-4),
        "weight_decay": params.get("weight_decay", 0.0),
        "adam_beta1": betas[0],
        "adam_beta2": betas[1],
        "adam_epsilon": params.get("eps", 1e-8),
        "gradient_checkpointing": planned.plan.recompute != Recompute.NONE,
        "deepspeed": CONFIG,
    }
    if arguments["gradient_checkpointing"]:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if planned.plan.compile:
        arguments["torch_compile"] = True
    return arguments


def auto_table(planned: Planned) -> list[tuple[str, Any, str]]:
    """Each "auto": (key, what it becomes, from which argument)."""
    arguments = training_arguments(planned)
    micro, steps = planned.plan.micro_batch, planned.plan.grad_accum
    becomes: dict[str, tuple[Any, str]] = {
        "train_micro_batch_size_per_gpu": (micro, "per_device_train_batch_size"),
        "gradient_accumulation_steps": (steps, "gradient_accumulation_steps"),
        "train_batch_size": (
            micro * steps * planned.plan.world_size,
            "world size x micro-batch x accumulation",
        ),
        "gradient_clipping": (arguments["max_grad_norm"], "max_grad_norm"),
        "bf16.enabled": (arguments["bf16"], "bf16"),
        "fp16.enabled": (arguments["fp16"], "fp16"),
        "optimizer.params.lr": (arguments["learning_rate"], "learning_rate"),
        "optimizer.params.betas": (
            [arguments["adam_beta1"], arguments["adam_beta2"]],
            "adam_beta1, adam_beta2",
        ),
        "optimizer.params.eps": (arguments["adam_epsilon"], "adam_epsilon"),
        "optimizer.params.weight_decay": (arguments["weight_decay"], "weight_decay"),
    }
    for key, value in _hidden_sizes(planned).items():
        becomes[f"zero_optimization.{key}"] = (value, "hidden_size of the model")
    rows = []
    for key, (value, source) in becomes.items():
        node: Any = hf_config(planned)
        for part in key.split("."):
            node = node.get(part, {}) if isinstance(node, dict) else {}
        if node == "auto":
            rows.append((key, value, source))
    return rows


def hf_trainer(planned: Planned) -> Exported:
    """The config, TrainingArguments as JSON, and a table of what each "auto" becomes."""
    config = hf_config(planned)
    notes = list(planned.trainer_notes)
    if planned.plan.tp > 1:
        real = planned.plan.micro_batch * planned.plan.grad_accum * planned.plan.dp
        notes.append(
            f"With autotp_size {planned.plan.tp} Trainer prints a total batch that counts every "
            f"GPU; {real} sequences are trained a step."
        )
    rows = auto_table(planned)
    table = [
        '# What each "auto" becomes',
        "",
        "| key | becomes | from |",
        "|---|---|---|",
        *(f"| `{key}` | `{json.dumps(value)}` | {source} |" for key, value, source in rows),
        "",
        *notes,
    ]
    return Exported(
        CONFIG,
        {
            CONFIG: json.dumps(config, indent=2) + "\n",
            ARGUMENTS: json.dumps(training_arguments(planned), indent=2) + "\n",
            TABLE: "\n".join(table).rstrip() + "\n",
        },
        tuple(notes),
    )
