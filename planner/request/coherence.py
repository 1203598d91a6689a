"""Checks the model, the cluster and the training run against each other."""

from cost_model.specs import ClusterSpec, Gpu, ModelSpec, TrainingSpec
from cost_model.specs.frozen import MOST_COUNT
from planner.errors import Problem
from planner.request.search import SearchOptions
from planner.request.training import BEFORE_FLASH_2


def coherence_problems(
    model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec
) -> list[Problem]:
    """What no plan could repair."""
    problems = []
    if cluster.gpus > MOST_COUNT:
        problems.append(
            Problem(
                "/cluster/nodes",
                f"{cluster.nodes} nodes of {cluster.node.gpus_per_node} GPUs",
                f"give at most {MOST_COUNT // cluster.node.gpus_per_node} nodes",
            )
        )
    if model.max_seq_len is not None and training.seq_len > model.max_seq_len:
        problems.append(
            Problem(
                "/training/seq_len",
                f"{training.seq_len} tokens, and {model.name} has positions for "
                f"{model.max_seq_len}",
                f"give at most {model.max_seq_len}",
            )
        )
    gpu = cluster.node.gpu
    if training.precision == "bf16" and gpu.bf16_tflops is None:
        problems.append(
            Problem(
                "/training/precision",
                f"bf16, and the {gpu.name} has no bf16 matrix unit",
                "give fp16 (with loss scaling) or fp32",
            )
        )
    lora = training.lora
    if lora is not None and lora.double_quantized and not lora.quantized_base:
        problems.append(
            Problem(
                "/training/lora/double_quantized",
                "true, and the base is not quantised",
                "set quantized_base too, or leave it out",
            )
        )
    problems += _matmul_problems(gpu, training)
    flash = training.attention in {"flash1", "flash2"}
    if flash and training.precision == "fp32":
        problems.append(
            Problem(
                "/training/attention",
                f"{training.attention} with fp32; flash attention has 16-bit kernels only",
                "give sdpa or eager, or a 16-bit precision",
            )
        )
    if training.attention == "flash2" and gpu.generation in BEFORE_FLASH_2:
        problems.append(
            Problem(
                "/training/attention",
                f"flash2, and there is no such kernel for the {gpu.name} ({gpu.generation})",
                "give sdpa or eager",
            )
        )
    return problems


def _matmul_problems(gpu: Gpu, training: TrainingSpec) -> list[Problem]:
    """TF32 is a mode of fp32 products; fp8 products are fed from 16 bits; both need a unit."""
    number = training.matmul_precision
    if number is None:
        return []
    where = "/training/matmul_precision"
    if (training.precision == "fp32") != (number == "tf32"):
        sort = "fp32" if number == "tf32" else "bf16 or fp16"
        given = f"{number} under {training.precision} training"
        return [Problem(where, given, f"leave it out, or give precision {sort}")]
    unit = gpu.tf32_tflops if number == "tf32" else gpu.fp8_tflops
    if unit is None:
        given = f"{number}, and the {gpu.name} has no {number} matrix unit"
        return [Problem(where, given, f"leave it out: products run in {training.precision}")]
    return []


def deadline_problems(search: SearchOptions, training: TrainingSpec) -> list[Problem]:
    """A deadline needs a token budget."""
    if search.deadline_days is None or training.tokens is not None:
        return []
    return [
        Problem(
            "/training/tokens",
            f"a deadline of {search.deadline_days} days and no tokens to train on",
            "give training.tokens",
        )
    ]
