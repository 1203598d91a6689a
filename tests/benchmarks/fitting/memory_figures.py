"""Which figures of the memory model are fitted, between what bounds, and what is expected of them.

Nearly everything in memory.json is read in the source code of the software. What no source code
says is how the allocator cuts its blocks, what a CUDA context and a communicator take, and how the
modules of one framework, whose source was not read, upcast. Expected values say what one would say
before seeing a row.
"""

from dataclasses import dataclass
from typing import Any

from cost_model.calibration.memory import MemoryCoefficients


@dataclass(frozen=True)
class Figure:
    """One free figure; it may stand at several places that share their reason."""

    places: tuple[tuple[str, ...], ...]
    """Keys from the top of the document."""
    low: float
    high: float
    expected: float
    spread: float
    """Standard deviation of the logarithm around the expectation."""

    @property
    def name(self) -> str:
        """Its first place."""
        return "/".join(self.places[0])


def _of(profile: str, name: str) -> tuple[str, ...]:
    return ("software", profile, name)


FIGURES: tuple[Figure, ...] = (
    Figure((("fragmentation",),), 0.005, 0.12, 0.03, 0.3),
    Figure((("context_gib",),), 0.3, 1.2, 0.6, 0.15),
    Figure((("communicator_gib",),), 0.05, 1.0, 0.4, 0.2),
    Figure((_of("deepspeed", "cache_floor_gib"),), 0.1, 4.0, 1.0, 0.5),
    Figure((_of("megatron", "cache_floor_gib"),), 0.1, 4.0, 1.0, 0.5),
    Figure(
        (
            _of("megatron_deepspeed", "cache_floor_gib"),
            _of("deepspeed_pipeline", "cache_floor_gib"),
        ),
        0.1,
        4.0,
        1.0,
        0.5,
    ),
    Figure((_of("fsdp", "cache_floor_gib"),), 0.1, 4.0, 1.0, 0.5),
    # Modules whose source was not read: memory.json derives what they would keep, which data may
    # move by a tenth.
    Figure((("stacks", "aa_scaling", "changes", "norm_saved_bytes"),), 2.0, 12.0, 10.0, 0.1),
    Figure((("stacks", "aa_scaling", "changes", "logit_peak_bytes"),), 8.0, 24.0, 16.0, 0.1),
    Figure((("stacks", "aa_scaling", "changes", "logit_kept_bytes"),), 0.5, 18.0, 12.0, 0.1),
    Figure((("stacks", "aa_scaling", "changes", "logit_gather_bytes"),), 0.5, 16.0, 12.0, 0.1),
    Figure((("stacks", "aa_scaling", "changes", "fused_score_bytes"),), 1.0, 8.0, 6.0, 0.1),
)


def read(document: dict[str, Any], figure: Figure) -> float:
    """The figure in a document."""
    found: Any = document
    for key in figure.places[0]:
        found = found[key]
    return float(found)


def with_figures(
    document: dict[str, Any], figures: tuple[Figure, ...], values: list[float]
) -> MemoryCoefficients:
    """The coefficients of a document with the figures at these values."""
    return MemoryCoefficients.model_validate(changed(document, figures, values))


def changed(
    document: dict[str, Any], figures: tuple[Figure, ...], values: list[float]
) -> dict[str, Any]:
    """A copy of the document with the figures at these values."""

    def copy(node: Any) -> Any:
        return {k: copy(v) for k, v in node.items()} if isinstance(node, dict) else node

    out: dict[str, Any] = copy(document)
    for figure, value in zip(figures, values, strict=True):
        for place in figure.places:
            node = out
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = float(value)
    return out
