"""How the ranks of a row's run are laid out, and its batch."""

import re
from dataclasses import dataclass

from cost_model import catalogue
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.known import catalogue_name
from tests.benchmarks.rows.raw import RawRow


@dataclass(frozen=True)
class Degrees:
    """How the ranks of a run are laid out, and its batch."""

    gpus: int
    tp: int
    pp: int
    cp: int
    dp: int
    micro_batch: int
    grad_accum: int
    global_batch: int
    """As the source states it; micro_batch x grad_accum x dp unless batches are uneven."""


def _gpus(raw: RawRow, ledger: Ledger) -> int:
    gpus = raw.integer("num_gpus")
    if gpus and "litgpt" in raw.text("framework").lower() and raw.integer("dp") is None:
        return _litgpt_devices(raw, gpus, ledger)
    if gpus is None:
        nodes, per_node = raw.integer("nodes"), raw.integer("gpus_per_node")
        if nodes and per_node:
            gpus = nodes * per_node
    if gpus is None:
        tp, pp, dp, cp = (raw.integer(k) for k in ("tp", "pp", "dp", "cp"))
        gpus = tp * pp * dp * (cp or 1) if tp and pp and dp else None
    if gpus is None:
        raise Skip("number of GPUs not stated")
    return gpus


def _litgpt_devices(raw: RawRow, gpus: int, ledger: Ledger) -> int:
    """Devices of a row of LitGPT, whose tables name a machine of `gpus`."""
    peak, entry = raw.number("peak_mem_gb"), catalogue_name(raw.text("model_name"))
    listed = catalogue.model(entry).params / 1e9 if entry else None
    billions = raw.number("params_b") or listed
    whole = "full" in f"{raw.text('model_name')} {raw.notes}".lower()
    if whole and peak and billions and peak < 8 * billions:  # 2 + 2 + 4 bytes a parameter
        ledger.assume("litgpt_shards_what_is_too_large")
        return gpus
    ledger.assume("litgpt_one_device")
    return 1


def _model_parallel(raw: RawRow, gpus: int, ledger: Ledger) -> tuple[int, int]:
    tp, pp, dp = raw.integer("tp"), raw.integer("pp"), raw.integer("dp")
    cp = raw.integer("cp") or 1
    if tp and pp:
        return tp, pp
    fully_sharded = raw.zero_stage == 3 or "fsdp" in raw.text("sharding").lower()
    litgpt = "litgpt" in raw.text("framework").lower()
    if gpus in (1, dp) or fully_sharded or litgpt:
        ledger.assume("no_tensor_parallelism")
        return tp or 1, pp or 1
    if dp and (tp or pp):
        rest = gpus // (dp * cp * (tp or pp or 1))
        return (tp or rest), (pp or rest)
    raise Skip("layout not stated")


def _micro_batch(raw: RawRow, dp: int, pp: int, ledger: Ledger) -> int:
    micro = raw.integer("micro_batch")
    if micro:
        return micro
    batch, accum = raw.integer("global_batch"), raw.integer("grad_accum")
    if batch and accum and batch % (dp * accum) == 0:
        return batch // (dp * accum)
    if batch and batch % dp == 0:
        if pp > 1:
            ledger.assume("micro_batch_1_in_pipeline")
            return 1
        if batch // dp <= 4:
            ledger.assume("micro_batch_fills_rank")
            return batch // dp
    raise Skip("micro-batch not stated")


def degrees_of(raw: RawRow, ledger: Ledger) -> Degrees:
    """Degrees and batch of a row; Skip where they cannot be known or do not add up."""
    if "TP not printed" in raw.notes:
        raise Skip("layout not stated")
    if re.search(r"per-op", raw.text("recompute")) or "per-op" in raw.notes:
        raise Skip("plan differs by operator")
    gpus = _gpus(raw, ledger)
    tp, pp = _model_parallel(raw, gpus, ledger)
    cp = raw.integer("cp") or 1
    dp = raw.integer("dp")
    if dp is None:
        ledger.assume("dp_fills_the_job")
        dp = max(1, gpus // (tp * pp * cp))
    if tp * pp * cp * dp != gpus:
        if gpus % (tp * pp * cp) or tp * pp * dp == gpus:
            raise Skip("degrees do not multiply to the number of GPUs")
        dp = gpus // (tp * pp * cp)
    micro = _micro_batch(raw, dp, pp, ledger)
    batch, accum = raw.integer("global_batch"), raw.integer("grad_accum")
    if batch is None:
        rule = "batch_from_micro_batches" if accum else "one_micro_batch"
        if not accum and "litgpt" in raw.text("framework").lower():
            rule, accum = "litgpt_accumulates", max(2, 8 // micro)
        ledger.assume(rule)
        accum = accum or 1
        batch = micro * accum * dp
    elif accum is None or micro * accum * dp != batch:
        if batch % (micro * dp):
            ledger.assume("uneven_micro_batches")
            micro = min(micro, max(1, -(-batch // dp)))
        else:
            ledger.assume("accumulation_fills_the_batch")
        accum = -(-batch // (micro * dp))
    return Degrees(gpus, tp, pp, cp, dp, micro, accum, batch)
