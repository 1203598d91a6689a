"""The plain DeepSpeed 0.19.8 config of a plan: concrete values only, no key of another stage."""

from typing import Any

from cost_model.memory.sub_groups import RATIO_GROUPS
from cost_model.plans import Offload, Plan, Software
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec

LEARNING_RATE = 1e-4
"""A plan does not choose it; a config without one cannot start."""

NVME_PATH = "/local_nvme"
"""Where NVMe offload writes; change it to the mount of the node's flash."""

_OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": (
        "AdamW",
        {"lr": LEARNING_RATE, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
    ),
    "adagrad": ("Adagrad", {"lr": LEARNING_RATE, "eps": 1e-10, "weight_decay": 0.0}),
    "lion": ("Lion", {"lr": LEARNING_RATE, "betas": [0.9, 0.99], "weight_decay": 0.01}),
    "muon": ("Muon", {"lr": LEARNING_RATE, "momentum": 0.95, "weight_decay": 0.01}),
    "sgd": ("SGD", {"lr": LEARNING_RATE, "momentum": 0.0, "weight_decay": 0.0}),
    "adafactor": ("Adafactor", {"lr": LEARNING_RATE}),
}
"""Optimizers that the engine builds from the config: its own, or torch.optim's by name."""

_TESTED_WITH_ZERO = ("adamw", "adagrad", "lion", "muon")

_LEAF_MODULES = {
    "MixtralForCausalLM": ("mixtral", "MixtralSparseMoeBlock"),
    "Qwen2MoeForCausalLM": ("qwen2_moe", "Qwen2MoeSparseMoeBlock"),
    "Qwen3MoeForCausalLM": ("qwen3_moe", "Qwen3MoeSparseMoeBlock"),
    "DeepseekV2ForCausalLM": ("deepseek_v2", "DeepseekV2Moe"),
    "DeepseekV3ForCausalLM": ("deepseek_v3", "DeepseekV3MoE"),
    "OlmoeForCausalLM": ("olmoe", "OlmoeSparseMoeBlock"),
    "DbrxForCausalLM": ("dbrx", "DbrxFFN"),
    "GptOssForCausalLM": ("gpt_oss", "GptOssMLP"),
    "Glm4MoeForCausalLM": ("glm4_moe", "Glm4MoeMoE"),
}
"""transformers' expert block by architecture: under ZeRO 3 it is gathered as one leaf, else ranks
whose tokens pick different experts wait for each other for ever."""


def checked_world_size(plan: Plan) -> int:
    """The world size that the engine checks the batch triple against.

    The data-parallel degree; with AutoTP the whole world, TP ranks included
    (runtime/config.py:471 knows no mpu there).
    """
    if plan.software == Software.DEEPSPEED:
        return plan.dp * plan.tp
    return plan.dp


def ds_config(
    model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec, plan: Plan
) -> dict[str, Any]:
    """A config that `deepspeed.initialize` takes as it is, at the plan's world size.

    With AutoTP `train_batch_size` is TP times the real global batch: the engine multiplies micro
    batch and accumulation by the whole world, though TP ranks see the same sequences. With AutoTP
    and ZeRO 3 it is left out: zero.Init parses the config again and there checks against the
    data-parallel ranks alone (partition_parameters.py:1077), so no value passes both. Ulysses SP
    takes no key: it is handed over as `mpu`; the key `sequence_parallel_size` would leave
    gradients unreduced over the SP ranks below ZeRO 3. Megatron-DeepSpeed builds its own
    optimizer, so that block is left out there.
    """
    config: dict[str, Any] = {
        "train_batch_size": plan.micro_batch * plan.grad_accum * checked_world_size(plan),
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
        "gradient_clipping": 1.0,
        "steps_per_print": 10,
        "wall_clock_breakdown": False,
    }
    if plan.software == Software.DEEPSPEED and plan.tp > 1 and plan.zero_stage == 3:
        del config["train_batch_size"]
    config |= _optimizer(training, plan)
    config |= _precision(training, plan)
    if plan.comm_16bit:
        # fp32 training; a GPU without bf16 reduces in fp16
        config["communication_data_type"] = "bf16" if cluster.node.gpu.bf16_tflops else "fp16"
    config["zero_optimization"] = _zero(model, plan)
    if Offload.NVME in {plan.offload_optimizer, plan.offload_param}:
        config["aio"] = {
            "block_size": 1_048_576,
            "queue_depth": 8,
            "intra_op_parallelism": 1,
            "single_submit": False,
            "overlap_events": True,
        }
    if plan.software == Software.DEEPSPEED and plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.software == Software.DEEPSPEED_PIPELINE:
        config["pipeline"] = {
            "activation_checkpoint_interval": int(plan.recompute != 0),
            "use_reentrant": False,
        }
    if plan.sequence_parallel and plan.pp > 1:
        # The engine else sends each TP rank's slice of what it takes for equal tensors
        # (runtime/pipe/engine.py:137); here they are shards, and the loss would be wrong.
        whole = {"pipe_partitioned": False, "grad_partitioned": False}
        config["pipeline"] = config.get("pipeline", {}) | whole
    if plan.partition_activations:
        config["activation_checkpointing"] = {
            "partition_activations": True,
            "cpu_checkpointing": plan.cpu_checkpointing,
            "contiguous_memory_optimization": False,
            "synchronize_checkpoint_boundary": False,
        }
    return config


def _optimizer(training: TrainingSpec, plan: Plan) -> dict[str, Any]:
    if plan.software == Software.MEGATRON_DEEPSPEED:
        return {}
    block: dict[str, Any] = {}
    if training.optimizer in _OPTIMIZERS:
        name, params = _OPTIMIZERS[training.optimizer]
        block["optimizer"] = {"type": name, "params": dict(params)}
    if plan.zero_stage and training.optimizer not in _TESTED_WITH_ZERO:
        block["zero_allow_untested_optimizer"] = True
    return block


def _precision(training: TrainingSpec, plan: Plan) -> dict[str, Any]:
    if training.precision == "fp32":
        return {}
    block: dict[str, Any] = {"enabled": True}
    if training.precision == "fp16":
        block |= {
            "loss_scale": 0,
            "initial_scale_power": 16,
            "loss_scale_window": 1000,
            "hysteresis": 2,
            "min_loss_scale": 1,
        }
    if not training.fp32_master and plan.zero_stage:
        block[f"{training.precision}_master_weights_and_grads"] = True
        if training.precision == "bf16":
            block["bf16_optimizer_states"] = True
    config: dict[str, Any] = {training.precision: block}
    if training.fp32_grad_accum is not None:
        dtype = "fp32" if training.fp32_grad_accum else training.precision
        config["data_types"] = {"grad_accum_dtype": dtype}
    return config


def _zero(model: ModelSpec, plan: Plan) -> dict[str, Any]:
    if plan.zero_stage == 0:
        return {"stage": 0}
    zero: dict[str, Any] = {
        "stage": plan.zero_stage,
        "overlap_comm": plan.overlap_comm,
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": plan.reduce_bucket,
    }
    if plan.zero_stage < 3:
        zero |= {"allgather_partitions": True, "allgather_bucket_size": plan.allgather_bucket}
    else:
        zero |= _stage_3(model, plan)
    if plan.offload_optimizer != Offload.NONE:
        zero["offload_optimizer"] = _offload_optimizer(plan)
    return zero


def _stage_3(model: ModelSpec, plan: Plan) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage3_prefetch_bucket_size": plan.prefetch_bucket,
        "stage3_param_persistence_threshold": plan.persistence_threshold,
        "stage3_max_live_parameters": plan.max_live_params,
        "stage3_max_reuse_distance": plan.max_live_params,
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    if plan.offload_optimizer == Offload.CPU and plan.offload_ratio < 1:
        zero["sub_group_size"] = _divisible_sub_group(model, plan)
    if plan.hpz > 1:
        zero["zero_hpz_partition_size"] = plan.hpz
    if plan.quantized_weights:
        zero["zero_quantized_weights"] = True
    if plan.quantized_gradients:
        zero["zero_quantized_gradients"] = True
    if plan.offload_param != Offload.NONE:
        zero["offload_param"] = _offload_param(model, plan)
    if model.is_moe and model.architecture in _LEAF_MODULES:
        module, name = _LEAF_MODULES[model.architecture]
        zero["leaf_module"] = {
            "classes": [f"transformers.models.{module}.modeling_{module}.{name}"]
        }
    return zero


def _offload_optimizer(plan: Plan) -> dict[str, Any]:
    block: dict[str, Any] = {"device": plan.offload_optimizer.name.lower(), "pin_memory": True}
    if plan.offload_optimizer == Offload.NVME:
        block |= {"nvme_path": NVME_PATH, "buffer_count": 4, "fast_init": False}
    elif plan.offload_ratio < 1:
        block["ratio"] = plan.offload_ratio
    return block


def _offload_param(model: ModelSpec, plan: Plan) -> dict[str, Any]:
    block: dict[str, Any] = {"device": plan.offload_param.name.lower(), "pin_memory": True}
    if plan.offload_param == Offload.NVME:
        block |= {
            "nvme_path": NVME_PATH,
            "buffer_count": 5,
            "buffer_size": _swap_buffer_elements(model, plan),
        }
    return block


def _divisible_sub_group(model: ModelSpec, plan: Plan) -> int:
    """Elements of a sub-group, so that a ratio splits the optimizer to a few per cent."""
    share = model.params // (plan.tp * plan.dp * plan.sp * plan.cp)
    return max(1, share // RATIO_GROUPS)


def _swap_buffer_elements(model: ModelSpec, plan: Plan) -> int:
    """Elements of one swap buffer: this rank's share of the largest parameter.

    A partition larger than the buffer is refused (partitioned_param_swapper.py:357), and five
    buffers of DeepSpeed's default of 10^8 elements pin a gigabyte on every rank.
    """
    largest = max(
        model.vocab * model.hidden,
        *(k.expert_params for k in model.kinds),
        *(2 * k.mlp.intermediate * model.hidden for k in model.kinds if k.mlp is not None),
        1,
    )
    share = -(-largest // (plan.dp * plan.sp * plan.cp))
    step = 1_048_576
    return -(-share // step) * step
