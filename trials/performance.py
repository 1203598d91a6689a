"""What a trial reached: tokens, FLOP/s, and the share of what its device can do. No torch here."""

import re

from cost_model.catalogue import gpu, gpu_names
from cost_model.flops import step_flops
from trials.result import Performance, RankReport
from trials.trial_file import TrialFile

_CARD = re.compile(r"\b(A100|A800|H100|H800|H200|H20|B200|V100|L40S|L4|T4|A10G|A10|A40|A6000)\b")


def performance(
    trial: TrialFile, ranks: tuple[RankReport, ...], step_seconds: float | None
) -> Performance | None:
    """Figures of the median step; None where no step was measured.

    FLOPs are the model's, without recompute, so the share is MFU (arXiv 2204.02311, appendix B).
    """
    if not step_seconds or not ranks:
        return None
    sequences = trial.plan.global_batch
    flops = step_flops(trial.model, trial.training) * sequences / step_seconds / len(ranks)
    peak, source = _peak(trial, ranks)
    return Performance(
        step_seconds=step_seconds,
        tokens_per_s=sequences * trial.training.seq_len / step_seconds,
        flops_per_s_per_rank=flops,
        peak_flops_per_s=peak,
        peak_source=source,
        mfu=None if peak is None else flops / peak,
    )


def _peak(trial: TrialFile, ranks: tuple[RankReport, ...]) -> tuple[float | None, str | None]:
    """FLOP/s of a rank's device: the data sheet's, or a processor's best measured product."""
    card = catalogue_name(ranks[0].device)
    if card is not None:
        return gpu(card).peak_flops(trial.training.precision), f"data sheet of {card}"
    products = [k for r in ranks for k in r.kernels if k.kind == "gemm" and k.seconds > 0]
    if not products:
        return None, None
    best = max(2.0 * k.m * k.n * k.k / k.seconds for k in products)
    return best, "fastest product measured before training"


def catalogue_name(device: str) -> str | None:
    """The catalogue's name of a card as its driver calls it; None where that is not sure.

    "NVIDIA A100-SXM4-80GB" is a100-80g-sxm: the card, then what else tells its variants apart.
    """
    card = _CARD.search(device.replace("_", " "))
    if card is None:
        return None
    low = device.lower()
    variants = [
        n for n in gpu_names() if n == card[1].lower() or n.startswith(f"{card[1].lower()}-")
    ]
    size = re.search(r"(\d+)\s?gb", low)
    bus = "pcie" if "pcie" in low else "sxm" if "sxm" in low or "hbm3" in low else ""
    fitting = [n for n in variants if bus in n and (size is None or _of_size(n, size[1]))]
    return fitting[0] if len(fitting) == 1 else None


def _of_size(name: str, gigabytes: str) -> bool:
    """Whether a catalogue name has this memory size, or names none."""
    sizes = re.findall(r"-(\d+)g\b", name)
    return not sizes or gigabytes in sizes
