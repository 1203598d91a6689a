"""Models, clusters and tables that the memory tests share."""

import numpy as np

from cost_model.catalogue import cluster, model
from cost_model.memory import Detail, detail
from cost_model.plans import Plan, PlanTable
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec, explicit

GIB = 2**30


def gpt(hidden: int, layers: int, heads: int, vocab: int = 51200) -> ModelSpec:
    """A GPT of the Megatron papers."""
    return explicit(name="gpt", hidden=hidden, layers=layers, heads=heads, vocab=vocab, gated=False)


def dgx(nodes: int = 1) -> ClusterSpec:
    """A100-80GB nodes."""
    return cluster("dgx-a100-80g", nodes)


def moments(plan: Plan, training: TrainingSpec, name: str = "llama-2-7b") -> dict[str, float]:
    """GiB allocated on the fullest stage, by moment."""
    found = detail(model(name), dgx(8), training, plan)
    return {
        m.moment: max(x.allocated for x in found.moments if x.moment == m.moment) / GIB
        for m in found.moments
    }


def peak_categories(found: Detail) -> dict[str, float]:
    """GiB by category at the peak."""
    return {name: value / GIB for name, value in found.peak.categories.items()}


def random_table(model_: ModelSpec, rows: int, seed: int) -> PlanTable:
    """Plans of every software, layout, sharding and recompute, not all of them legal."""
    rng = np.random.default_rng(seed)

    def pick(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return rng.choice(np.array(values), rows)

    return PlanTable.from_columns(
        rows,
        software=pick(0, 1, 2, 3, 4),
        tp=pick(1, 2, 4, 8),
        sequence_parallel=pick(0, 1),
        pp=pick(*(p for p in (1, 2, 3, 4, 8) if p <= model_.layers)),
        vpp=pick(1, 2),
        dp=pick(1, 2, 8, 64),
        cp=pick(1, 2),
        ep=pick(1, 2) if model_.is_moe else 1,
        zero_stage=pick(0, 1, 2, 3),
        hpz=pick(1, 8),
        micro_batch=pick(1, 2, 4),
        grad_accum=pick(1, 2, 16),
        recompute=pick(0, 1, 2),
        recompute_layers=pick(-1, 1, 2),
        partition_activations=pick(0, 1),
        cpu_checkpointing=pick(0, 1),
        offload_optimizer=pick(0, 1, 2),
        offload_param=pick(0, 1, 2),
        overlap_comm=pick(0, 1),
        chunked_loss=pick(0, 1),
        compile=pick(0, 1),
        first_stage_layers=pick(0, 1),
        last_stage_layers=pick(0, 1),
    )
