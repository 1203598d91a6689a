"""What a case says happened, as claims that each have one right answer."""

import re
from collections.abc import Iterator
from typing import Any

from cost_model.plans import Offload
from tests.benchmarks.cases.claim import Claim, Outcome, gpu_counts, outcome_of
from tests.benchmarks.cases.fields import Fields, alternatives, first_number, text
from tests.benchmarks.cases.models import model_of
from tests.benchmarks.cases.tables import (
    bucket_claims,
    layout_claims,
    matrix_claims,
    method_claims,
    row_claims,
)
from tests.benchmarks.cases.translate import Question, question_of
from tests.benchmarks.rows.assumptions import Skip


def claims_of(case: Fields) -> list[Claim]:
    """Every claim of a case; Skip where it states none that can be checked."""
    found = list(_all(case))
    if not found:
        raise Skip("no outcome that a prediction can have")
    return found


def _all(case: Fields) -> Iterator[Claim]:
    observed: Fields = case.get("observed") or {}
    config: Fields = case.get("config") or {}
    said = text(observed, "outcome")
    if said == "wrong estimate":
        true = first_number(observed, "true_b")
        if true:
            yield Claim(
                f"{true:g} billion parameters", "params", lambda: _bare(case), quantity=true * 1e9
            )
        return
    if isinstance(config.get("rows"), list):
        buckets = all("bucket" in row for row in config["rows"])
        yield from bucket_claims(config) if buckets else row_claims(case, config)
        return
    if said == "mixed":
        yield from layout_claims(case, config)
    if config.get("rows") and not isinstance(observed.get("oom"), list):
        return
    if said == "matrix":
        yield from matrix_claims(case, observed)
        return
    yield from _started(case, config, observed)
    yield from method_claims(case, config, observed)
    if said == "slow":
        yield from _slow(case, config)
        return
    outcome = outcome_of(said)
    if outcome is not None:
        yield from _plain(case, config, observed, outcome)
    for key, value in observed.items():
        other = outcome_of(str(value)) if key != "outcome" else None
        if other is not None:
            yield from _variant(case, config, key, other)
    yield from _fixed(case, config, text(observed, "fix"))
    if isinstance(observed.get("oom"), list):
        for words in observed["oom"]:
            row = {k.lower(): int(n) for k, n in re.findall(r"(PP|TP|MBS)(\d+)", str(words))}
            memory = re.search(r"(\d+) ?GB", str(words))
            gpu = f"V100-{memory.group(1)}GB" if memory else None
            yield Claim(
                str(words),
                "oom_gpu",
                lambda r=row, g=gpu: question_of(  # type: ignore[misc]
                    case, {**config, "act_ckpt": False, **r}, gpu_counts(case)[0], gpu=g
                ),
            )


def _bare(case: Fields) -> Question:
    """A question of which only the model matters."""
    stand_in = {**case, "cluster": {"gpus": 1, "gpu": "A100-80GB"}}
    return question_of(stand_in, {}, 1)


def _plain(case: Fields, config: Fields, observed: Fields, outcome: Outcome) -> Iterator[Claim]:
    geometry: Fields = case.get("geometry") or {}
    for gpus in gpu_counts(case):
        for zero in alternatives(config, "zero"):
            for size in _sizes_that_fail(geometry, observed):
                one = {**config, "zero": zero} if "zero" in config else dict(config)
                yield Claim(
                    f"{gpus} GPUs, zero {zero}, {size} B",
                    outcome,
                    lambda g=gpus, c=one, s=size: question_of(  # type: ignore[misc]
                        case, c, g, model=model_of(case, s)
                    ),
                )
    too_many = first_number(observed, "mbs_oom")
    if too_many:
        yield Claim(
            f"micro-batch {too_many:g}",
            "oom_gpu",
            lambda: question_of(case, {**config, "mbs": too_many}, gpu_counts(case)[0]),
        )


def _fixed(case: Fields, config: Fields, fix: str) -> Iterator[Claim]:
    """What the thread says made it run, where that is a knob of the plan."""
    changes: dict[str, Any] = {}
    if "checkpointing" in fix:
        changes["act_ckpt"] = True
    micro, chunks = re.search(r"mbs ?<?= ?(\d+)", fix), re.search(r"vpp ?= ?(\d+)", fix)
    if micro:
        changes["mbs"] = int(micro.group(1))
    if chunks:
        changes["vpp"] = int(chunks.group(1))
    if changes:
        one = {**config, **changes}
        yield Claim(f"with {fix}", "fits", lambda: question_of(case, one, gpu_counts(case)[0]))


def _sizes_that_fail(geometry: Fields, observed: Fields) -> list[Any]:
    """The sizes of a case without those that its own note says are the most that fit."""
    sizes = alternatives(geometry, "params_b")
    most = re.search(r"max on [\dx ]+GB ~[\d.]+-([\d.]+) ?B", str(observed.get("note") or ""))
    if most is None:
        return sizes
    return [s for s in sizes if s is None or float(s) > float(most.group(1))]


def _started(case: Fields, config: Fields, observed: Fields) -> Iterator[Claim]:
    """What the GPU held when the engine had started."""
    gigabytes = first_number(observed, "mem_gb_after_init")
    if gigabytes:
        yield Claim(
            f"{gigabytes:g} GB when it has started",
            "holds",
            lambda: question_of(case, config, gpu_counts(case)[0]),
            quantity=gigabytes * 1e9,
        )


def _variant(case: Fields, config: Fields, key: str, outcome: Outcome) -> Iterator[Claim]:
    """A key of `observed` that names a variant: two_gpus, without_cp, or a strategy."""
    words = {"one": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}
    count = re.fullmatch(r"(\w+)_gpus?", key)
    without = re.fullmatch(r"without_(\w+)", key)
    stages = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    if count and (gpus := words.get(count.group(1)) or int(first_number({"n": key}, "n") or 0)):
        yield Claim(key, outcome, lambda: question_of(case, config, gpus))
    elif without:
        one = {**config, without.group(1): 1}
        one.pop("dp", None)
        yield Claim(key, outcome, lambda: question_of(case, one, gpu_counts(case)[0]))
    elif key in stages:
        one = {**config, "zero": stages[key]}
        yield Claim(key, outcome, lambda: question_of(case, one, gpu_counts(case)[0]))


def _slow(case: Fields, config: Fields) -> Iterator[Claim]:
    """Slower than the same on one node, or than offload to the host where it is to NVMe."""
    cluster: Fields = case.get("cluster") or {}
    gpus = gpu_counts(case)[0]
    nodes = int(first_number(cluster, "nodes") or 1)
    if nodes > 1:
        if not text(cluster, "inter", "network"):
            raise Skip("network not stated")
        alone = {**case, "cluster": {**cluster, "nodes": 1}}
        yield Claim(
            "slower per sample and GPU than one node",
            "slower",
            lambda: question_of(case, config, gpus),
            other=lambda: question_of(alone, config, max(1, gpus // nodes)),
        )
    elif "nvme" in text(config, "offload"):
        zero3 = {**config, "zero": 3}
        yield Claim(
            "slower than offload to the host",
            "slower",
            lambda: question_of(case, zero3, gpus),
            other=lambda: question_of(case, zero3, gpus).on(
                offload_optimizer=Offload.CPU, offload_param=Offload.CPU
            ),
        )
