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

PIPELINED_MICRO_BATCH = 2
"""Largest micro-batch that the rule gives a pipeline: larger ones leave too few to fill it."""


class RuleOfThumb:
    """Data parallelism where a replica fits one GPU; else TP within the node, then PP.

    As practitioners state it: the least model parallelism with which the model fits, data
    parallelism with the rest; tensor parallelism up to the GPUs of a node first, pipeline stages
    once that is not enough (arXiv 2104.04473, section 3, takeaways 1 and 2), and stages before
    tensor parallelism where the GPUs of a node have no NVLink (the guide to parallelism of Hugging
    Face transformers). ZeRO 1, recompute only where it does not fit without, no offload; the
    largest micro-batch that fits, at most 2 in a pipeline. It watches the search go by and picks
    its plan from the plans that fit.
    """

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.found: list[PlanTable] = []
        self.fast_link = resolved.cluster.node.link.kind in {"nvswitch", "nvlink"}

    def observe(self, table: PlanTable, scores: Scores) -> None:
        """Takes note of a block of fitting plans."""
        del scores
        fixed = self.resolved.search.fixed
        mask = table.nodes == fixed.get("nodes", self.resolved.cluster.nodes)
        for name, value in CUSTOM.items():
            if name not in fixed:
                mask &= getattr(table, name) == value
        if "recompute" not in fixed:
            whole = (table.recompute == int(Recompute.NONE)) | (
                table.recompute == int(Recompute.FULL)
            )
            mask &= whole
        rows = np.flatnonzero(mask)
        if len(rows):
            picked = table.take(rows)
            self.found.append(picked.take(self._order(picked)[:1]))

    def best(self) -> PlanTable:
        """The rule's plan as one row; no row where no plan of its kind fits."""
        if not self.found:
            return PlanTable.from_columns(0)
        table = join(self.found)
        return table.take(self._order(table)[:1])

    def _order(self, table: PlanTable) -> Ints:
        piped = table.pp > 1
        split = table.tp * table.pp > 1
        if self.fast_link:
            layout = (piped, np.where(piped, -table.tp, table.tp), table.pp)
        else:
            layout = (table.tp > 1, table.tp, table.pp)
        software = np.array([SOFTWARE_ORDER[s] for s in range(len(SOFTWARE_ORDER))])
        # ZeRO 1 is the custom, and 2 and 3 where nothing fits with it.
        shards_more = table.zero_stage > 1
        stage = np.where(table.zero_stage == 0, 4, table.zero_stage)
        large = piped & (table.micro_batch > PIPELINED_MICRO_BATCH)
        first_to_last = (
            *(shards_more, split, *layout, software[table.software]),
            *(table.recompute, stage, table.ep, ~table.sequence_parallel),
            np.where(large, table.micro_batch, -table.micro_batch),
        )
        order: Ints = np.lexsort(first_to_last[::-1])
        return order
