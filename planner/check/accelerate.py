"""An Accelerate config that carries DeepSpeed settings: one source of truth, or none is right."""

from collections.abc import Mapping
from typing import Any

from planner.check.report import Finding
from planner.check.situation import Situation

PLUGIN_FIELDS = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "offload_optimizer_nvme_path",
    "zero3_save_16bit_model",
)
"""Fields of deepspeed_config that the plugin itself takes (accelerate, DeepSpeedPlugin)."""


def is_accelerate(document: Mapping[str, Any]) -> bool:
    """Whether a document is an Accelerate config rather than a ds_config."""
    return "deepspeed_config" in document and (
        "distributed_type" in document or "num_processes" in document
    )


def check(situation: Situation) -> list[Finding]:
    """Findings about the Accelerate config beside the ds_config."""
    config = situation.accelerate
    if config is None:
        return []
    block = config.get("deepspeed_config", config)
    if not isinstance(block, Mapping):
        return []
    found = [*_two_sources(config, block), *_stale(config, situation)]
    if block.get("zero3_init_flag") and block.get("zero_stage", 3) != 3:
        found.append(
            Finding(
                "warning",
                "accelerate-init-flag",
                "accelerate.zero3_init_flag",
                "zero3_init_flag is for stage 3 alone; Accelerate sets it to false",
                "drop it",
            )
        )
    return found


def _two_sources(config: Mapping[str, Any], block: Mapping[str, Any]) -> list[Finding]:
    if "deepspeed_config_file" not in block:
        return []
    doubled = [f for f in PLUGIN_FIELDS if f in block]
    if config.get("mixed_precision") not in (None, "no") and "mixed_precision" in config:
        doubled.append("mixed_precision")
    if not doubled:
        return []
    return [
        Finding(
            "error",
            "accelerate-two-sources",
            "accelerate.deepspeed_config_file",
            f"beside deepspeed_config_file, {', '.join(doubled)} would be ignored, and "
            f"Accelerate stops "
            'with "the following accelerate config variables will be ignored"',
            "keep deepspeed_config_file and drop these fields (write them in the ds_config), or "
            "keep the "
            "fields and drop the file; look for leftovers in the default config of the user's "
            "cache and "
            "in ACCELERATE_ environment variables, and always give --config_file",
        )
    ]


def _stale(config: Mapping[str, Any], situation: Situation) -> list[Finding]:
    cli = situation.facts.get("cli")
    saved = situation.facts.get("default_config")
    if not isinstance(cli, Mapping) or not isinstance(saved, Mapping):
        return []
    return [
        Finding(
            "error",
            "accelerate-stale-default",
            f"accelerate.{name}",
            f"the command line says {cli[name]!r}, the saved default_config says {value!r}: for "
            "DeepSpeed the saved file wins in silence",
            "give the whole config with --config_file, and delete the saved default_config.yaml",
        )
        for name, value in saved.items()
        if name in cli and cli[name] != value
    ]
