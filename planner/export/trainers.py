"""Lines of LLaMA-Factory's and axolotl's own yaml that point at the config and agree with it."""

import json
from typing import Any

import yaml

from cost_model.plans import Recompute
from planner.export.hf_trainer import CONFIG, hf_config, training_arguments
from planner.export.result import Exported, Planned


def _with_config(planned: Planned, name: str, values: dict[str, Any]) -> Exported:
    head = f"# Lines for your own {name}: they agree with {CONFIG}.\n"
    head += "".join(f"# {note}\n" for note in planned.trainer_notes)
    return Exported(
        name,
        {
            name: head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True),
            CONFIG: json.dumps(hf_config(planned), indent=2) + "\n",
        },
        planned.trainer_notes,
    )


def _lora_rank(planned: Planned) -> int | None:
    return None if planned.training.lora is None else planned.training.lora.rank


def llama_factory(planned: Planned) -> Exported:
    """LLaMA-Factory takes TrainingArguments; checkpointing is on unless it is switched off."""
    arguments = training_arguments(planned)
    values: dict[str, Any] = {
        "model_name_or_path": planned.options.model_path,
        "deepspeed": CONFIG,
        "finetuning_type": "full" if planned.training.lora is None else "lora",
    }
    rank = _lora_rank(planned)
    if rank is not None:
        values |= {"lora_rank": rank, "lora_target": "all"}
    values |= {
        "cutoff_len": planned.training.seq_len,
        "per_device_train_batch_size": arguments["per_device_train_batch_size"],
        "gradient_accumulation_steps": arguments["gradient_accumulation_steps"],
        "bf16": arguments["bf16"],
        "fp16": arguments["fp16"],
        "learning_rate": arguments["learning_rate"],
        "weight_decay": arguments["weight_decay"],
        "max_grad_norm": arguments["max_grad_norm"],
        "disable_gradient_checkpointing": planned.plan.recompute == Recompute.NONE,
        "output_dir": planned.options.output_dir,
    }
    if planned.training.attention == "flash2":
        values["flash_attn"] = "fa2"
    return _with_config(planned, "llama_factory.yaml", values)


def axolotl(planned: Planned) -> Exported:
    """axolotl names the micro-batch micro_batch_size."""
    arguments = training_arguments(planned)
    values: dict[str, Any] = {
        "base_model": planned.options.model_path,
        "deepspeed": CONFIG,
        "sequence_len": planned.training.seq_len,
        "micro_batch_size": arguments["per_device_train_batch_size"],
        "gradient_accumulation_steps": arguments["gradient_accumulation_steps"],
        "bf16": arguments["bf16"],
        "fp16": arguments["fp16"],
        "learning_rate": arguments["learning_rate"],
        "weight_decay": arguments["weight_decay"],
        "max_grad_norm": arguments["max_grad_norm"],
        "optimizer": "adamw_torch",
        "lr_scheduler": "cosine",
        "gradient_checkpointing": arguments["gradient_checkpointing"],
        "output_dir": planned.options.output_dir,
    }
    rank = _lora_rank(planned)
    if rank is not None:
        values |= {
            "adapter": "lora",
            "lora_r": rank,
            "lora_alpha": rank,
            "lora_target_linear": True,
        }
    if arguments["gradient_checkpointing"]:
        values["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if planned.training.attention == "flash2":
        values["flash_attention"] = True
    if planned.plan.sp > 1:
        values["context_parallel_size"] = planned.plan.sp
    return _with_config(planned, "axolotl.yaml", values)
