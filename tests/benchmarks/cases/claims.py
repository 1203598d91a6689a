"""What a case says happened, as claims that each have one right answer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from cost_model.plans import Offload
from tests.benchmarks.cases.fields import Fields, alternatives, first_number, numbers, text
from tests.benchmarks.cases.translate import Question, bucket_question, model_of, question_of
from tests.benchmarks.rows.assumptions import Skip

Outcome = Literal["fits", "oom_gpu", "oom_host", "oom", "slower", "params", "saves", "holds"]


@dataclass(frozen=True)
class Claim:
    """One statement of a case.

    `slower`: the question takes longer per sample than `other`. `params`: the model has
    `quantity` parameters. `saves`: `other` takes `quantity` bytes of the GPU fewer. `holds`: the
    GPU holds `quantity` bytes when the engine has started. The rest are outcomes of running the
    question.
    """

    what: str
    outcome: Outcome
    ask: Callable[[], Question]
    other: Callable[[], Question] | None = None
    quantity: float = 0.0


def _outcome(words: str) -> Outcome | None:
    """The outcome that a text begins with."""
    for outcome in ("oom_gpu", "oom_host", "oom", "fits"):
        if words.lower().startswith(outcome):
            return outcome
    return None


def _counts(case: Fields) -> list[int]:
    cluster: Fields = case.get("cluster") or {}
    counts = [int(n) for n in numbers(cluster.get("gpus"))]
    if not counts:
        raise Skip("number of GPUs not stated")
    return counts


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
        yield from _buckets(config) if buckets else _rows(case, config)
        return
    if said == "mixed":
        yield from _layouts(case, config)
    if config.get("rows") and not isinstance(observed.get("oom"), list):
        return
    if said == "matrix":
        yield from _matrix(case, observed)
        return
    yield from _started(case, config, observed)
    yield from _methods(case, config, observed)
    if said == "slow":
        yield from _slow(case, config)
        return
    outcome = _outcome(said)
    if outcome is not None:
        yield from _plain(case, config, observed, outcome)
    for key, value in observed.items():
        other = _outcome(str(value)) if key != "outcome" else None
        if other is not None:
            yield from _variant(case, config, key, other)
    if isinstance(observed.get("oom"), list):
        for words in observed["oom"]:
            row = {k.lower(): int(n) for k, n in re.findall(r"(PP|TP|MBS)(\d+)", str(words))}
            memory = re.search(r"(\d+) ?GB", str(words))
            gpu = f"V100-{memory.group(1)}GB" if memory else None
            yield Claim(
                str(words),
                "oom_gpu",
                lambda r=row, g=gpu: question_of(  # type: ignore[misc]
                    case, {**config, "act_ckpt": False, **r}, _counts(case)[0], gpu=g
                ),
            )


def _bare(case: Fields) -> Question:
    """A question of which only the model matters."""
    stand_in = {**case, "cluster": {"gpus": 1, "gpu": "A100-80GB"}}
    return question_of(stand_in, {}, 1)


def _plain(case: Fields, config: Fields, observed: Fields, outcome: Outcome) -> Iterator[Claim]:
    geometry: Fields = case.get("geometry") or {}
    for gpus in _counts(case):
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
            lambda: question_of(case, {**config, "mbs": too_many}, _counts(case)[0]),
        )


def _sizes_that_fail(geometry: Fields, observed: Fields) -> list[Any]:
    """The sizes of a case without those that its own note says are the most that fit."""
    sizes = alternatives(geometry, "params_b")
    most = re.search(r"max on [\dx ]+GB ~[\d.]+-([\d.]+) ?B", str(observed.get("note") or ""))
    if most is None:
        return sizes
    return [s for s in sizes if s is None or float(s) > float(most.group(1))]


def _layouts(case: Fields, config: Fields) -> Iterator[Claim]:
    """Layouts that the symptom or the outcome names: `TP4 PP32 30 GB`, `TP1 PP64 DP2 OOM`."""
    observed: Fields = case.get("observed") or {}
    words = f"{case.get('symptom') or ''}; {observed.get('megatron') or ''}"
    for part in words.split(";"):
        row = {k.lower(): int(n) for k, n in re.findall(r"\b(PP|TP|DP|MBS)(\d+)", part)}
        if "tp" not in row or "pp" not in row:
            continue
        more: dict[str, Any] = {"act_ckpt": True, **row}
        if "8-bit adam" in part.lower():
            more["optimizer"] = "adam 8-bit"
        yield Claim(
            part.strip(),
            "oom_gpu" if "OOM" in part else "fits",
            lambda r=more: question_of(  # type: ignore[misc]
                case, {**config, **r}, _counts(case)[0]
            ),
        )
    killed = str(observed.get("zero2_offload") or "")
    if "host" in killed:
        yield Claim(
            "zero 2 with offload",
            "oom_host",
            lambda: question_of(
                case, {"zero": "2-offload", "offload": "cpu", "mbs": 8}, _counts(case)[0]
            ),
        )


def _buckets(config: Fields) -> Iterator[Claim]:
    """Rows that differ in the reduce bucket: how many bytes fewer than the first. Any model will do
    whose peak is in the backward pass."""
    first, *rest = config["rows"]
    for row in rest:
        if row.get("contiguous") != first.get("contiguous"):
            continue  # the engine's buckets are always contiguous in a plan
        yield Claim(
            f"overlap {row['overlap']}, bucket {row['bucket']:g}",
            "saves",
            lambda r=first: bucket_question(r),  # type: ignore[misc]
            other=lambda r=row: bucket_question(r),  # type: ignore[misc]
            quantity=(first["mb"] - row["mb"]) * 2.0**20,
        )


def _started(case: Fields, config: Fields, observed: Fields) -> Iterator[Claim]:
    """What the GPU held when the engine had started."""
    gigabytes = first_number(observed, "mem_gb_after_init")
    if gigabytes:
        yield Claim(
            f"{gigabytes:g} GB when it has started",
            "holds",
            lambda: question_of(case, config, _counts(case)[0]),
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
        yield Claim(key, outcome, lambda: question_of(case, one, _counts(case)[0]))
    elif key in stages:
        one = {**config, "zero": stages[key]}
        yield Claim(key, outcome, lambda: question_of(case, one, _counts(case)[0]))


def _rows(case: Fields, config: Fields) -> Iterator[Claim]:
    """Each row of a table in the config: it ran, unless it says otherwise."""
    common = {k: v for k, v in config.items() if k != "rows"}
    for row in config["rows"]:
        mode = str(row.get("mode") or row.get("m") or "").lower()
        stage = re.search(r"zero-?(\d)", mode)
        more: dict[str, Any] = {"mode": mode}
        if stage:
            more["zero"] = int(stage.group(1))
        elif "z" in row:
            more["zero"] = row["z"]
        elif "fsdp" in mode:
            more["fsdp"] = True
        if "ckpt" in mode:
            more["act_ckpt"] = "no-ckpt" not in mode
        size = re.fullmatch(r"([\d.]+)([mb])", mode)
        billions = float(size.group(1)) / (1e3 if size.group(2) == "m" else 1) if size else None
        merged = {**common, **row, **more}
        outcome = _outcome(str(row.get("outcome") or "fits"))
        if outcome is not None:
            yield Claim(
                f"{mode or 'row'} {row.get('bs') or ''}".strip(),
                outcome,
                lambda c=merged, b=billions: question_of(  # type: ignore[misc]
                    case, c, _counts(case)[0], model=model_of(case, b)
                ),
            )


def _matrix(case: Fields, observed: Fields) -> Iterator[Claim]:
    """Lines such as `80GBx2: 7B full ZeRO-3; 14B LoRA ZeRO-2`: each of them runs."""
    config: Fields = case.get("config") or {}
    family = re.match(r"[A-Za-z]+[\d.]*", str(case.get("model") or "")) or re.match("", "")
    for line in observed.get("rows") or ():
        head = re.match(r"(\d+)GBx(\d+):(.*)", str(line))
        if head is None:
            continue
        memory, gpus = int(head.group(1)), int(head.group(2))
        for part in re.split(r"[;,]", head.group(3)):
            cell = re.search(r"([\d.]+)b (full|q-?lora|lora)(?: zero-?(\d))?", part.lower())
            if cell is None or family is None:
                continue
            name = f"{family.group(0)}-{cell.group(1)}B"
            one = {**config, "method": cell.group(2), "zero": cell.group(3) or 0}
            yield Claim(
                part.strip(),
                "fits",
                lambda n=name, c=one, g=gpus, m=memory: question_of(  # type: ignore[misc]
                    {**case, "model": n}, c, g, model=model_of(case, name=n), gpu=f"{m}GB"
                ),
            )


def _methods(case: Fields, config: Fields, observed: Fields) -> Iterator[Claim]:
    """Tables by method: {"lora": {"7B": 20.3, "72B": "OOM"}}."""
    family = re.match(r"[A-Za-z]+[\d.]*", str(case.get("model") or ""))
    for method in ("full", "lora", "qlora"):
        table = observed.get(method)
        if not isinstance(table, dict) or family is None:
            continue
        for size, cell in table.items():
            one = {**config, "method": method}
            if method == "full":
                one["optimizer"] = "adam bf16"
            name = f"{family.group(0)}-{size}"
            yield Claim(
                f"{method} {size}",
                "oom_gpu" if isinstance(cell, str) else "fits",
                lambda n=name, c=one: question_of(  # type: ignore[misc]
                    {**case, "model": n}, c, _counts(case)[0], model=model_of(case, name=n)
                ),
            )


def _slow(case: Fields, config: Fields) -> Iterator[Claim]:
    """Slower than the same on one node, or than offload to the host where it is to NVMe."""
    cluster: Fields = case.get("cluster") or {}
    gpus = _counts(case)[0]
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
