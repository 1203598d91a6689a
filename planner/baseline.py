"""The practitioner's rule of thumb, as a named baseline for the exact search."""

import numpy as np

from cost_model.plans import Ints, PlanTable, Recompute, Software
from planner.objectives import Scores
from planner.request.request import Resolved
from planner.rows import join

CUSTOM = {
    "sp": 1,
    "cp": 1,
    "hpz": 1,
    "vpp": 1,
    "recompute": int(Recompute.FULL),
    "recompute_layers": -1,
    "offload_optimizer": 0,
    "offload_param": 0,
    "chunked_loss": 0,
    "partition_activations": 0,
    "cpu_checkpointing": 0,
}
"""What the rule does not touch; a value that the request fixes goes first."""

SOFTWARE_ORDER = {
    int(Software.MEGATRON_DEEPSPEED): 0,
    int(Software.MEGATRON): 1,
    int(Software.DEEPSPEED_PIPELINE): 2,
    int(Software.DEEPSPEED): 3,
    int(Software.FSDP): 4,
}
"""Where tensor parallelism and stages go together first."""


class RuleOfThumb:
    """TP until it fits, then PP, then DP with the rest.

    As practitioners state it: tensor parallelism within the node as far as memory demands, then
    pipeline stages, then data parallelism over all GPUs; ZeRO 1, full recompute, no offload, the
    largest micro-batch that fits. It watches the search go by and picks its plan from the plans
    that fit.
    """

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.found: list[PlanTable] = []

    def observe(self, table: PlanTable, scores: Scores) -> None:
        """Takes note of a block of fitting plans."""
        del scores
        fixed = self.resolved.search.fixed
        mask = table.nodes == fixed.get("nodes", self.resolved.cluster.nodes)
        for name, value in CUSTOM.items():
            if name not in fixed:
                mask &= getattr(table, name) == value
        rows = np.flatnonzero(mask)
        if len(rows):
            picked = table.take(rows)
            self.found.append(picked.take(_order(picked)[:1]))

    def best(self) -> PlanTable:
        """The rule's plan as one row; no row where no plan of its kind fits."""
        if not self.found:
            return PlanTable.from_columns(0)
        table = join(self.found)
        return table.take(_order(table)[:1])


def _order(table: PlanTable) -> Ints:
    software = np.array([SOFTWARE_ORDER[s] for s in range(len(SOFTWARE_ORDER))])[table.software]
    stage = np.where(table.zero_stage == 0, 4, table.zero_stage)  # ZeRO 1 is the custom
    unsharded = ~table.sequence_parallel
    return np.lexsort(
        (-table.micro_batch, unsharded, table.ep, stage, table.pp, table.tp, software)
    )
