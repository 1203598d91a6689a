"""Claims of a case that lists several runs: rows, a matrix, methods, layouts, buckets."""

import re
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.cases.claim import Claim, gpu_counts, outcome_of
from tests.benchmarks.cases.fields import Fields
from tests.benchmarks.cases.models import model_of
from tests.benchmarks.cases.translate import bucket_question, question_of


def row_claims(case: Fields, config: Fields) -> Iterator[Claim]:
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
        outcome = outcome_of(str(row.get("outcome") or "fits"))
        if outcome is not None:
            yield Claim(
                f"{mode or 'row'} {row.get('bs') or ''}".strip(),
                outcome,
                lambda c=merged, b=billions: question_of(  # type: ignore[misc]
                    case, c, gpu_counts(case)[0], model=model_of(case, b)
                ),
            )


def matrix_claims(case: Fields, observed: Fields) -> Iterator[Claim]:
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


def method_claims(case: Fields, config: Fields, observed: Fields) -> Iterator[Claim]:
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
                    {**case, "model": n}, c, gpu_counts(case)[0], model=model_of(case, name=n)
                ),
            )


def layout_claims(case: Fields, config: Fields) -> Iterator[Claim]:
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
                case, {**config, **r}, gpu_counts(case)[0]
            ),
        )
    killed = str(observed.get("zero2_offload") or "")
    if "host" in killed:
        yield Claim(
            "zero 2 with offload",
            "oom_host",
            lambda: question_of(
                case, {"zero": "2-offload", "offload": "cpu", "mbs": 8}, gpu_counts(case)[0]
            ),
        )


def bucket_claims(config: Fields) -> Iterator[Claim]:
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
