"""The formats that a plan can be written in. A new one is added to FORMATS."""

from cost_model.plans import Plan
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from planner.export.accelerate import accelerate
from planner.export.bundle import bundle
from planner.export.environment import environment
from planner.export.example import example
from planner.export.hf_trainer import hf_trainer
from planner.export.launch import launch
from planner.export.megatron import megatron_deepspeed, megatron_lm
from planner.export.options import ExportOptions
from planner.export.plain import plain
from planner.export.result import Exported, Exporter, NotExportable, Planned
from planner.export.trainers import axolotl, llama_factory

_SINGLE: dict[str, Exporter] = {
    "ds_config": plain,
    "hf_trainer": hf_trainer,
    "accelerate": accelerate,
    "megatron_deepspeed": megatron_deepspeed,
    "megatron_lm": megatron_lm,
    "llama_factory": llama_factory,
    "axolotl": axolotl,
    "launch": launch,
    "environment": environment,
    "example": example,
}


def _bundle(planned: Planned) -> Exported:
    return bundle(planned, _SINGLE.values())


FORMATS: dict[str, Exporter] = {**_SINGLE, "bundle": _bundle}


def export(
    name: str,
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    plan: Plan,
    options: ExportOptions | None = None,
) -> Exported:
    """A plan in one format.

    KeyError for a name that is not in FORMATS; NotExportable where the format cannot express the
    plan.
    """
    planned = Planned(model, cluster, training, plan, options or ExportOptions())
    return FORMATS[name](planned)


__all__ = ["FORMATS", "ExportOptions", "Exported", "NotExportable", "Planned", "export"]
