"""What is known about the run beside the config: who reads it, on how many ranks, what model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cost_model.specs import ClusterSpec, ModelSpec

Mode = Literal["unknown", "deepspeed", "pipeline", "hf_trainer", "accelerate", "megatron_deepspeed"]

MODES: dict[str, Mode] = {
    "deepspeed": "deepspeed",
    "deepspeed_pipeline": "pipeline",
    "pipeline": "pipeline",
    "hf_trainer": "hf_trainer",
    "transformers": "hf_trainer",
    "llama_factory": "hf_trainer",
    "axolotl": "hf_trainer",
    "trl": "hf_trainer",
    "accelerate": "accelerate",
    "megatron_deepspeed": "megatron_deepspeed",
}
RESOLVES_AUTO: frozenset[Mode] = frozenset({"hf_trainer", "accelerate"})

FACT_NAMES: dict[str, str] = {
    "world_size": "world_size",
    "num_gpus": "world_size",
    "n_gpus": "world_size",
    "gpus": "world_size",
    "pp": "pp",
    "pp_size": "pp",
    "pipeline_model_parallel_size": "pp",
    "tp": "tp",
    "tp_size": "tp",
    "tensor_model_parallel_size": "tp",
    "model_parallel_size": "tp",
    "sequence_parallel": "sequence_parallel",
    "sp": "sp",
    "sp_size": "sp",
    "ulysses_sequence_parallel_size": "sp",
    "vpp": "vpp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "ep": "ep",
    "ep_size": "ep",
    "expert_model_parallel_size": "ep",
    "experts": "experts",
    "num_experts": "experts",
    "num_local_experts": "experts",
    "seq_len": "seq_len",
    "sequence_length": "seq_len",
    "hidden": "hidden",
    "hidden_size": "hidden",
    "dp": "dp",
    "dp_saved": "dp_saved",
    "dp_now": "dp_now",
    "world_saved": "dp_saved",
    "world_now": "dp_now",
    "gpus_saved": "dp_saved",
    "gpus_now": "dp_now",
    "load_in_4bit": "quantized_base",
    "load_in_8bit": "quantized_base",
    "qlora": "quantized_base",
    "cp": "cp",
    "context_parallel_size": "cp",
    "n_mb": "micro_batches",
    "num_microbatches": "micro_batches",
    "num_layers": "layers",
    "num_hidden_layers": "layers",
    "vocab": "vocab",
    "vocab_size": "vocab",
    "heads": "heads",
    "num_attention_heads": "heads",
    "kv_heads": "kv_heads",
    "num_key_value_heads": "kv_heads",
    "native_moe": "native_moe",
    "moe": "native_moe",
    "model": "model_name",
    "model_name": "model_name",
    "multimodal": "multimodal",
    "apply_ort": "ort",
    "lora": "lora",
    "auto_find_batch_size": "auto_find_batch_size",
    "universal": "universal",
    "mp_saved": "tp_saved",
    "mp_now": "tp_now",
    "ckpt": "recompute",
    "recompute": "recompute",
    "gradient_checkpointing": "recompute",
    "client_optimizer": "client_optimizer",
    "wsl": "wsl",
}
"""Keys that no DeepSpeed reads and that tell of the run; people paste them beside the config."""
PACKAGES = frozenset({"transformers", "accelerate", "torch", "deepspeed", "pydantic", "peft"})
TRAINER_NAMES = frozenset({"hf", "training_args", "training_arguments", "trainer"})


@dataclass(frozen=True)
class Situation:
    """Everything that the checks may ask about the run."""

    mode: Mode = "unknown"
    world_size: int | None = None
    version: str = "0.19.8"
    model: ModelSpec | None = None
    cluster: ClusterSpec | None = None
    cuda: bool = True
    """Whether the engine that will read the config has CUDA."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of other packages, such as transformers."""
    trainer: Mapping[str, Any] | None = None
    """TrainingArguments given beside the config."""
    accelerate: Mapping[str, Any] | None = None
    """The Accelerate config beside it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """tp, pp, sp, vpp, micro_batches, layers, vocab, heads, kv_heads, native_moe and the like."""

    def degree(self, name: str) -> int:
        """A parallel degree from the facts; 1 where it is not told."""
        value = self.facts.get(name, 1)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
