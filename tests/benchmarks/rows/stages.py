"""What each pipeline stage of a row holds, and what of it is recomputed."""

import re
from itertools import pairwise

from cost_model.plans import Recompute
from cost_model.specs.model import ModelSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.raw import RawRow


def recompute_of(  # noqa: PLR0911, PLR0912 - one line a spelling
    raw: RawRow, layers: int, pp: int, compiled: bool, ledger: Ledger
) -> tuple[Recompute, int]:
    """(what is recomputed, in how many layers of a stage; -1 is all)."""
    text = raw.text("recompute").lower()
    per_stage = max(1, layers // pp)
    mfu, hfu = raw.number("mfu"), raw.number("hfu")
    if text in ("none", "") and mfu and hfu and hfu / mfu > 1.3:
        ledger.assume("recomputed_by_hfu")
        return Recompute.FULL, -1
    if text in ("none", "disabled", "0", "no", "false", "off"):
        return Recompute.NONE, -1
    if text in ("full", "1", "yes", "true", "on", "uniform"):
        return Recompute.FULL, -1
    if re.fullmatch(r"selective(\(core_attn\))?", text):
        return Recompute.SELECTIVE, -1
    if "sac taken as" in raw.notes.lower() and text.startswith("every"):
        ledger.assume("torchtrain_selective_is_by_operator")
        text = "selective_op"
    every = re.match(r"every_(\d+)_layers", text)
    if every:
        return Recompute.FULL, max(1, per_stage // int(every.group(1)))
    if text == "selective_op":
        ledger.assume("op_checkpointing_as_layers")
        return Recompute.FULL, round((0.58 if compiled else 0.67) * per_stage)
    stages = re.search(r"checkpointed layers per stage=\[([\d, ]+)\]", raw.notes)
    if text == "partial" and stages:
        counts = [int(n) for n in stages.group(1).split(",")]
        if len(set(counts)) > 1:
            raise Skip("stages recompute differently")
        return Recompute.FULL, counts[0]
    if text:
        raise Skip("recomputes parts of a layer that are not modelled")
    framework = raw.text("framework").lower()
    if "torchtune" in framework:
        ledger.assume("torchtune_recipes")
        return Recompute.FULL, -1
    if re.search(r"gpipe|torch pipe", framework):
        ledger.assume("gpipe_recomputes")
        return Recompute.FULL, -1
    if "deepspeed 3d megatron" in framework:
        ledger.assume("megatron_examples_recompute")
        return Recompute.FULL, -1
    ledger.assume("recompute_not_stated")
    return Recompute.NONE, -1


def stage_layers(  # noqa: PLR0911 - one line a spelling
    raw: RawRow, model: ModelSpec, pp: int, ledger: Ledger
) -> tuple[int, int]:
    """(layers of the first stage, of the last); 0 divides evenly."""
    layers = model.layers
    if "aa-scaling" in raw.text("framework").lower() and pp > 1:
        ledger.assume("stages_of_equal_parameters")
        layer = model.kinds[0].params
        ends = (model.embedding_params / layer, model.head_params / layer)
        sizes = balanced_stages(layers, pp, *ends)
        if len(sizes) == pp and len(set(sizes[1:-1])) < 2:
            return sizes[0], sizes[-1]
    if "nanotron" in raw.text("framework").lower() and pp > 1:
        ledger.assume("stages_of_equal_cost")
        kind = model.kinds[0]
        sizes = stages_by_cost(layers, pp, model.head_matmul_params / kind.matmul_params)
        return sizes[0], sizes[-1]
    args = raw.arguments
    first = int(args.get("decoder-first-pipeline-num-layers", 0))
    last = int(args.get("decoder-last-pipeline-num-layers", 0))
    if args.get("account-for-embedding-in-pipeline-split") and (layers + 2) % pp == 0 and pp > 1:
        return (layers + 2) // pp - 1, (layers + 2) // pp - 1
    if "one layer fewer on the first and the last stage" in raw.notes and (layers + 2) % pp == 0:
        return (layers + 2) // pp - 1, (layers + 2) // pp - 1
    parts = re.search(r"layer_partitions=\[([\d, ]+)\]", raw.notes)
    if parts and pp > 1:
        sizes = [int(n) for n in parts.group(1).split(",")]
        if len(sizes) == pp and sum(sizes) == layers:
            return sizes[0], sizes[-1]
    blocks = re.search(r"layer blocks per stage .*?=\[([\d, ]+)\]", raw.notes)
    if blocks and pp > 1:
        sizes = [int(n) for n in blocks.group(1).split(",")]
        if len(sizes) == pp and sum(sizes) == layers + 2:
            return sizes[0] - 1, sizes[-1] - 1
    bounds = re.search(r"partition boundaries \[([\d, ]+)\]", raw.notes)
    if bounds and pp > 1:
        cuts = [int(n) for n in bounds.group(1).split(",")]
        # The model's list has three entries before the layers (cast, embedding, transpose) and
        # three after them (transpose, norm, head): Megatron-DeepSpeed, GPTModelPipe.
        if cuts[-1] == layers + 6 and len(cuts) == pp + 1:
            sizes = [max(0, min(b, layers + 3) - max(a, 3)) for a, b in pairwise(cuts)]
            if max(sizes[1:-1], default=0) - min(sizes[1:-1], default=0) > 1:
                raise Skip("stages of unequal layers")
            return sizes[0], sizes[-1]
    return first, last


def balanced_stages(layers: int, pp: int, embedding: float, head: float) -> list[int]:
    """Layers of each stage where the largest stage holds as few parameters as can be.

    embedding, head: parameters of the ends in units of a layer. Stages are filled from the first
    one on up to the largest stage's load (DeepSpeed, runtime/utils.py, partition_balanced).
    """
    items = [embedding, *([1.0] * layers), head]
    loads = {sum(items[a:b]) for a in range(len(items)) for b in range(a + 1, len(items) + 1)}
    for most in sorted(loads):
        stages, load = [0], 0.0
        for place, item in enumerate(items):
            if load + item > most + 1e-9:
                stages.append(0)
                load = 0.0
            load += item
            stages[-1] += 0 < place <= layers
        if len(stages) <= pp and most >= max(items):
            return stages
    return []


def stages_by_cost(layers: int, pp: int, head: float) -> list[int]:
    """Layers of each stage where a stage ends with the layer that passes its share of the cost.

    head: cost of the output matrix in units of a layer; an embedding costs nothing (nanotron,
    get_block_compute_costs and the loop that places its blocks).
    """
    sizes, stage = [0] * pp, 0
    for layer in range(1, layers + 1):
        sizes[stage] += 1
        if stage < pp - 1 and layer > (layers + head) * (stage + 1) / pp + 1e-9:
            stage += 1
    return sizes


def vpp_of(raw: RawRow, layers: int, pp: int, ledger: Ledger) -> int:
    vpp = raw.integer("vpp")
    if vpp:
        return vpp if pp > 1 else 1
    if pp > 1 and re.search(r"megatron-core r|nemo 2[4-9]", raw.text("framework").lower()):
        ledger.assume("interleave_fully")
        return layers // pp
    return 1
