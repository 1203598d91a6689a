"""Degrees against the model: layers, vocabulary, heads and micro-batches that do not divide."""

from dataclasses import dataclass
from typing import Any

from planner.check import edit
from planner.check.report import Finding
from planner.check.situation import Situation


@dataclass(frozen=True)
class _Shape:
    layers: int | None
    vocab: int | None
    heads: int | None
    kv_heads: int | None


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """Findings about divisibility, each with the degrees that would do."""
    shape = _shape(situation)
    autotp = edit.get(document, ("tensor_parallel", "autotp_size"), 1)
    tp = max(situation.degree("tp"), autotp if isinstance(autotp, int) else 1)
    told = document.get("sequence_parallel_size", 1)
    sp = max(situation.degree("sp"), told if isinstance(told, int) else 1)
    pp, vpp = situation.degree("pp"), situation.degree("vpp")
    return [
        *_pipeline(shape, pp, vpp, situation),
        *_tensor(shape, tp, autotp != 1),
        *_sequence(shape, sp),
        *_world(situation, autotp if isinstance(autotp, int) else 1),
        *_beyond(situation, tp),
        *_nodes(situation),
        *_experts(situation),
        *_sequence_length(situation, sp),
        *_micro_batches(document, situation, pp),
    ]


def _shape(situation: Situation) -> _Shape:
    def told(name: str) -> int | None:
        return _told(situation, name)

    model = situation.model
    if model is None:
        return _Shape(told("layers"), told("vocab"), told("heads"), told("kv_heads"))
    attention = next((k.attention for k in model.kinds if k.attention is not None), None)
    return _Shape(
        told("layers") or model.layers,
        told("vocab") or model.vocab,
        told("heads") or (attention.heads if attention else None),
        told("kv_heads") or (attention.kv_heads if attention else None),
    )


def _divisors(number: int, limit: int = 1024) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def _pipeline(shape: _Shape, pp: int, vpp: int, situation: Situation) -> list[Finding]:
    found = []
    chunks = pp * vpp
    if pp > 1 and shape.layers and shape.layers % chunks:
        built = shape.layers // chunks * chunks
        found.append(
            Finding(
                "error",
                "layers-uneven",
                "pp",
                f"{shape.layers} layers do not divide into {chunks} pipeline chunks: Megatron-Core "
                f"then builds {built} without a word, which is another model (Megatron-LM issue "
                "1304); DeepSpeed's PipelineModule gives the earlier stages one more",
                f"use pp x vpp of {', '.join(map(str, _divisors(shape.layers)[:10]))}, or give "
                f"first "
                "and last stage their own number of layers "
                "(--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers)",
            )
        )
    batches = situation.degree("micro_batches")
    if vpp > 1 and pp > 1 and "micro_batches" in situation.facts and batches % pp:
        low, high = batches // pp * pp, -(-batches // pp) * pp
        found.append(
            Finding(
                "error",
                "micro-batches-uneven",
                "micro_batches",
                f"the interleaved schedule needs micro-batches in multiples of pp: {batches} is "
                f"none "
                f"of {pp}",
                f"use {f'{low} or ' if low else ''}{high} micro-batches, or vpp 1",
            )
        )
    return found


def _tensor(shape: _Shape, tp: int, auto: bool) -> list[Finding]:
    found = []
    if tp > 1 and shape.vocab and shape.vocab % tp:
        padded = -(-shape.vocab // tp) * tp
        megatron = -(-shape.vocab // (128 * tp)) * 128 * tp
        found.append(
            Finding(
                "warning" if auto else "error",
                "vocab-uneven",
                "tp",
                f"a vocabulary of {shape.vocab} does not divide by tp={tp}; padded it is {padded} "
                f"({padded - shape.vocab} rows more), by Megatron's rule (multiples of 128 x tp) "
                f"{megatron} ({megatron - shape.vocab} rows more, hidden x 2 bytes each in 16 "
                f"bits, "
                "twice where embeddings are untied)",
                f"pad the vocabulary to {padded} (Megatron: --make-vocab-size-divisible-by), "
                f"and cut "
                "the padding before the checkpoint is exported: loading it elsewhere fails with a "
                "size mismatch",
            )
        )
    if tp > 1 and shape.heads and shape.heads % tp:
        found.append(
            Finding(
                "error",
                "heads-uneven",
                "tp",
                f"{shape.heads} attention heads do not divide by tp={tp}",
                f"use tp of {', '.join(map(str, _divisors(shape.heads)))}",
            )
        )
    elif tp > 1 and shape.kv_heads and shape.kv_heads % tp:
        found.append(
            Finding(
                "warning" if auto else "error",
                "kv-heads-uneven",
                "tp",
                f"{shape.kv_heads} key-value heads do not divide by tp={tp}: "
                + (
                    "AutoTP leaves ranks beyond them without a shard of attention "
                    "(runtime/engine.py:1048)"
                    if auto
                    else "Megatron and torchtitan refuse it"
                ),
                f"use tp of {', '.join(map(str, _divisors(shape.kv_heads)))}",
            )
        )
    return found


def ulysses_degrees(heads: int, kv_heads: int | None) -> list[int]:
    """Sequence-parallel degrees that heads allow: common divisors, or all heads at once."""
    kv = kv_heads or heads
    common = [d for d in _divisors(heads) if kv % d == 0]
    return [*common, heads] if heads not in common else common


def _sequence(shape: _Shape, sp: int) -> list[Finding]:
    if sp <= 1 or not shape.heads:
        return []
    legal = ulysses_degrees(shape.heads, shape.kv_heads)
    if sp in legal:
        return []
    more = "there are more ranks than heads; " if sp > shape.heads else ""
    kv = f" and {shape.kv_heads} key-value heads" if shape.kv_heads else ""
    return [
        Finding(
            "error",
            "heads-sequence-parallel",
            "sp",
            f"Ulysses splits heads over the sequence ranks: {more}{shape.heads} heads{kv} do "
            f"not go "
            f"with sp={sp}",
            f"use sp of {', '.join(map(str, legal))}",
        )
    ]


def _world(situation: Situation, autotp: int) -> list[Finding]:
    world = situation.world_size
    if world is None or autotp <= 1 or world % autotp == 0:
        return []
    return [
        Finding(
            "error",
            "world-tensor-parallel",
            "tensor_parallel.autotp_size",
            f"{world} ranks do not divide into groups of {autotp}: initialize raises an IndexError "
            "(utils/groups.py:229)",
            f"use autotp_size of {', '.join(map(str, _divisors(world)))}",
        )
    ]


def _beyond(situation: Situation, tp: int) -> list[Finding]:
    """Degrees whose product is more than the ranks there are."""
    world = situation.world_size
    wished = situation.facts.get("pp_wished")
    pp = wished if isinstance(wished, int) and wished > 1 else situation.degree("pp")
    if world is None or tp * pp <= world:
        return []
    return [
        Finding(
            "error",
            "degrees-beyond-world",
            "",
            f"tensor parallel {tp} x pipeline {pp} asks for {tp * pp} GPUs at least, and there are "
            f"{world}",
            f"use degrees whose product divides {world}",
        )
    ]


def _told(situation: Situation, name: str) -> int | None:
    value = situation.facts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _experts(situation: Situation) -> list[Finding]:
    """Experts over the expert-parallel ranks, which are data-parallel ranks."""
    ep = situation.degree("ep")
    experts = _told(situation, "experts")
    if experts is None and situation.model is not None:
        counts = {k.moe.experts for k in situation.model.kinds if k.moe is not None}
        experts = min(counts) if counts else None
    if ep <= 1:
        return []
    found = []
    if experts and experts % ep:
        found.append(
            Finding(
                "error",
                "experts-uneven",
                "ep",
                f"{experts} experts do not divide over ep={ep}: each rank must own as many",
                f"use ep of {', '.join(map(str, _divisors(experts)))}",
            )
        )
    dp = _told(situation, "dp")
    if dp is None and situation.world_size:
        dp = situation.world_size // (situation.degree("tp") * situation.degree("pp")) or None
    if dp and dp % ep:
        found.append(
            Finding(
                "error",
                "experts-data-parallel",
                "ep",
                f"expert-parallel groups are cut from the data-parallel ranks: ep={ep} does not "
                f"divide {dp}",
                f"use ep of {', '.join(map(str, _divisors(dp)))}",
            )
        )
    return found


def _sequence_length(situation: Situation, sp: int) -> list[Finding]:
    parts = max(sp, situation.degree("cp"))
    length = _told(situation, "seq_len")
    if parts <= 1 or not length or length % parts == 0:
        return []
    near = [n for n in (length // parts * parts, -(-length // parts) * parts) if n]
    return [
        Finding(
            "error",
            "sequence-uneven",
            "seq_len",
            f"a sequence of {length} tokens does not divide over {parts} sequence ranks",
            f"pad or cut to {' or '.join(map(str, near))}",
        )
    ]


def _micro_batches(document: dict[str, Any], situation: Situation, pp: int) -> list[Finding]:
    """Fewer micro-batches than stages leave stages idle all the time."""
    if situation.mode not in ("pipeline", "megatron_deepspeed") or pp <= 1:
        return []
    steps = document.get("gradient_accumulation_steps")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 < steps < 2 * pp:
        return []
    idle = (pp - 1) / (steps + pp - 1)
    return [
        Finding(
            "warning",
            "pipeline-bubble",
            "gradient_accumulation_steps",
            f"{steps} micro-batches in a pipe of {pp} stages: {idle:.0%} of the time is bubble "
            "((pp - 1) / (micro-batches + pp - 1))",
            f"accumulate {4 * pp} micro-batches or more",
        )
    ]


def _nodes(situation: Situation) -> list[Finding]:
    nodes = situation.facts.get("nodes")
    if not isinstance(nodes, list | tuple):
        return []
    counts = [n.get("gpus") if isinstance(n, dict) else n for n in nodes]
    numbers = [c for c in counts if isinstance(c, int)]
    if len(set(numbers)) < 2:
        return []
    each = ", ".join(
        f"node {i}: torchrun --nnodes {len(numbers)} --node_rank {i} --nproc_per_node {c}"
        for i, c in enumerate(numbers)
    )
    return [
        Finding(
            "error",
            "uneven-nodes",
            "nodes",
            f"the nodes have different numbers of GPUs ({', '.join(map(str, numbers))}): "
            f"DeepSpeed's "
            "launcher and pdsh start equal numbers, and the launch fails",
            f"start each node by itself ({each}), or use {min(numbers)} on each",
        )
    ]
