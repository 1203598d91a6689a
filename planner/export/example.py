"""A complete script that builds the model under the plan and trains on random tokens."""

import json
from importlib.resources import files
from typing import Any

from cost_model import catalogue
from cost_model.plans import Software
from cost_model.specs import ModelSpec
from planner.export.result import Exported, NotExportable, Planned

SCRIPT = "train.py"


def _template(planned: Planned) -> str | None:
    plan = planned.plan
    if plan.software == Software.DEEPSPEED_PIPELINE or plan.ep > 1:
        return "train_blocks.py.txt"
    if plan.software == Software.DEEPSPEED:
        return "train_hf.py.txt"
    if plan.software == Software.FSDP:
        return "train_fsdp.py.txt"
    return None


def script_arguments(planned: Planned) -> list[str]:
    """The script with its arguments, as a list of words."""
    name = _template(planned)
    if name in ("train_hf.py.txt", "train_fsdp.py.txt"):
        return [SCRIPT, "--model", planned.options.model_path]
    return [SCRIPT]


def shape(model: ModelSpec) -> dict[str, Any]:
    """Sizes of the plain blocks that stand for the model where code must build it."""
    kind = model.kinds[max(model.layer_pattern)]
    attention = kind.attention
    if attention is None:
        raise NotExportable(f"{model.name} has layers without attention; the example has none such")
    moe = kind.moe
    intermediate = moe.intermediate if moe else (kind.mlp.intermediate if kind.mlp else 0)
    return {
        "hidden": model.hidden,
        "layers": model.layers,
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "intermediate": intermediate or 4 * model.hidden,
        "vocab": model.vocab,
        "experts": moe.experts if moe else 0,
        "top_k": moe.top_k if moe else 0,
    }


def model_config(planned: Planned) -> dict[str, Any]:
    """A config.json of the model: the request's, the preset's, or a Llama of its sizes."""
    given = planned.options.model_config_json
    if given is not None:
        return given
    model = planned.model
    if model.name in catalogue.model_names():
        return dict(catalogue.model_config(model.name))
    sizes = shape(model)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
        "intermediate_size": sizes["intermediate"],
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": model.max_seq_len or planned.training.seq_len,
        "tie_word_embeddings": model.tied_embeddings,
    }


def example(planned: Planned) -> Exported:
    """train.py with the files that it reads; Megatron has its own pretrain_gpt.py."""
    name = _template(planned)
    if name is None:
        raise NotExportable(
            "Megatron trains with its own pretrain_gpt.py and the arguments of megatron_args.sh"
        )
    text = (files("planner.export") / "scripts" / name).read_text("utf-8")
    training = {
        "seq_len": planned.training.seq_len,
        "precision": planned.training.precision,
        "attention": planned.training.attention,
    }
    out: dict[str, str | bytes] = {
        SCRIPT: text,
        "plan.json": json.dumps(planned.plan.model_dump(mode="json"), indent=2) + "\n",
        "training.json": json.dumps(training, indent=2) + "\n",
    }
    if name == "train_blocks.py.txt":
        sizes = shape(planned.model) | {"stage_layers": planned.stage_layers}
        out["geometry.json"] = json.dumps(sizes, indent=2) + "\n"
    else:
        out["model/config.json"] = json.dumps(model_config(planned), indent=2) + "\n"
    return Exported(SCRIPT, out)
