"""Reads files of measurements; each row becomes a question and what was measured, or a reason."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cost_model.plans import Plan
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.degrees import degrees_of
from tests.benchmarks.rows.geometry import as_computed, model_of, refuse
from tests.benchmarks.rows.hardware import cluster_of
from tests.benchmarks.rows.layout import plan_of
from tests.benchmarks.rows.measured import Measured, measured_of
from tests.benchmarks.rows.raw import RawRow, read_csv
from tests.benchmarks.rows.training import kernel_name, training_of


@dataclass(frozen=True)
class Row:
    """One run as a question to the cost model, and its measured values."""

    source: str
    row_id: str
    model_name: str
    gpu_text: str
    global_batch: int
    """As the source states it."""
    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    plan: Plan
    measured: Measured
    kernel: str
    assumed: tuple[str, ...]
    """Names of the rules in assumptions.RULES that filled its gaps."""

    @property
    def gpus(self) -> int:
        """Ranks of the run."""
        return self.plan.world_size

    @property
    def group(self) -> tuple[ModelSpec, ClusterSpec, TrainingSpec]:
        """Rows of equal group can be asked in one call: only the plan differs.

        The batch is part of the plan; the training's own copy of it does not count.
        """
        return self.model, self.cluster, self.training.model_copy(update={"global_batch": 1})

    @property
    def family(self) -> str:
        """Rows of one model's shape: what cross-validation holds out together."""
        return f"{self.width}-l{self.model.layers}"

    @property
    def width(self) -> str:
        """Rows of equal hidden size and style: the same, held out more widely."""
        style = "gated" if self.model.activation == "silu" else "plain"
        return f"{style}-h{self.model.hidden}"

    @property
    def size(self) -> str:
        """Rows of one source on one number of GPUs: held out where a cluster was never seen."""
        return f"{self.source}-x{self.gpus}"

    @property
    def sweep(self) -> str:
        """Key of the rows that differ only in the plan."""
        return (
            f"{self.source} | {self.model_name} | {self.gpu_text} x {self.gpus}"
            f" | seq {self.training.seq_len} | batch {self.global_batch}"
        )


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be asked, and why."""

    source: str
    row_id: str
    reason: str


def translate(raw: RawRow, default_source: str = "unnamed") -> Row | Skipped:
    """One raw row as a Row, or why it cannot be one."""
    source = raw.text("source") or default_source
    ledger = Ledger()
    try:
        if re.search(r"do not use|source says invalid", raw.notes.lower()):
            raise Skip("invalid by its own source")
        refuse(raw)
        degrees = degrees_of(raw, ledger)
        cluster = cluster_of(raw, degrees.gpus, ledger)
        model = model_of(raw, degrees.tp, ledger)
        plan = plan_of(raw, degrees, model, cluster.nodes, cluster.node.gpu, ledger)
        gpu = cluster.node.gpu
        gated = model.activation == "silu"
        batch = plan.global_batch
        training = training_of(raw, plan.software, gpu, batch, gated, plan.compile, ledger)
        model = as_computed(raw, model, training, ledger)
        measured = measured_of(raw, model, degrees, gpu, ledger)
    except Skip as reason:
        return Skipped(source, raw.text("row_id"), str(reason))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return Skipped(source, raw.text("row_id"), f"impossible value of {where}")
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # A file never seen before must not stop the reading of the others.
        return Skipped(source, raw.text("row_id"), f"cannot be read: {error!s:.80}")
    if measured.seconds is None and measured.memory_bytes is None and measured.oom is None:
        return Skipped(source, raw.text("row_id"), "nothing measured")
    return Row(
        source=source,
        row_id=raw.text("row_id"),
        model_name=raw.text("model_name"),
        gpu_text=gpu.name,
        global_batch=degrees.global_batch,
        model=model,
        cluster=cluster,
        training=training,
        plan=plan,
        measured=measured,
        kernel=kernel_name(raw),
        assumed=tuple(ledger.used),
    )


def read_file(path: Path) -> Iterator[Row | Skipped]:
    """Every row of one CSV; where it breaks off, what follows is one row that cannot be read."""
    try:
        for raw in read_csv(path):
            yield translate(raw, path.stem)
    except (csv.Error, OSError) as error:
        yield Skipped(path.stem, "", f"file cannot be read: {error!s:.80}")


def read_directory(directory: Path) -> list[Row | Skipped]:
    """Every row of every CSV of a directory, in the order of the file names."""
    files = sorted(p for p in directory.glob("*") if p.suffix.lower() == ".csv" and p.is_file())
    if not files:
        raise FileNotFoundError(f"no CSV file in {directory}")
    return [row for path in files for row in read_file(path)]
