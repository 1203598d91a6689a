"""Runs the dry run of a plan: a child process for each rank that can be the fullest."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cost_model.memory import detail
from cost_model.memory.over_groups import nodes_of_stage
from cost_model.plans import Plan
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from planner.export import ds_config
from trials.dryrun.limits import notes, reason_against
from trials.dryrun.result import GIB, DryRunFailure, DryRunResult, DryRunTask, RankResult

TIME_LIMIT_S = 600.0

POLL_S = 0.5
"""How often a run asks whether it is still wanted."""


def dry_run(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    plan: Plan,
    *,
    stages: Sequence[int] | None = None,
    rank_in_stage: int | None = None,
    config: dict[str, Any] | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    wanted: Callable[[], bool] | None = None,
) -> DryRunResult:
    """The exported config of a plan in the real engine, on fake tensors.

    stages: pipeline stages to run, by default the first and the last, one of which is the
    fullest; where stages lie on groups of different nodes, the first and last of each.
    rank_in_stage: which rank of each, by default the one that holds most (fullest_rank). config: a
    ds_config to run instead of the exported one. Raises DryRunFailure where the engine refuses the
    config, the model cannot be built, or the time limit passes; wanted is asked now and then, and
    where it says no the run ends with that exception too.
    """
    began = time.monotonic()
    against = reason_against(model, training, plan)
    if against is not None:
        raise DryRunFailure("unsupported", against)
    ran = stages if stages is not None else _ends(plan)
    ranks_per_stage = plan.world_size // plan.pp
    in_stage = fullest_rank(plan) if rank_in_stage is None else rank_in_stage
    results = []
    for stage in ran:
        left = time_limit_s - (time.monotonic() - began)
        task = DryRunTask(
            model=model,
            training=training,
            plan=plan,
            ds_config=config or ds_config(model, cluster, training, plan),
            rank=stage * ranks_per_stage + in_stage,
            gpu_bytes=int(
                nodes_of_stage(cluster, plan, model.layers, stage).node.gpu.memory_gib * GIB
            ),
        )
        results.append(_in_child(task, left, wanted))
    worst = max(results, key=lambda r: r.peak.total_bytes)
    return DryRunResult(
        ranks=tuple(results),
        predicted=predicted(model, cluster, training, plan, worst.stage),
        seconds=time.monotonic() - began,
        notes=notes(model, plan),
    )


def fullest_rank(plan: Plan) -> int:
    """The rank of a stage that holds most: under ZeRO 1 and 2 the last.

    Its part of the gradients is the last layers', which the backward pass makes first, while most
    activations are there; other ranks keep theirs later (stage_1_and_2.py). Elsewhere ranks of a
    stage hold alike.
    """
    return plan.world_size // plan.pp - 1 if plan.zero_stage in (1, 2) else 0


def _ends(plan: Plan) -> list[int]:
    """The first and last stage, of the pipeline and of its part on each group of nodes."""
    ends, behind = {0, plan.pp - 1}, 0
    for stages, _ in plan.placement.parts:
        behind += stages
        ends |= {behind - 1, behind}
    return sorted(ends)


def predicted(
    model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec, plan: Plan, stage: int
) -> dict[str, Any]:
    """What the cost model says of one stage, in the terms of the dry run; allocated GiB."""
    found = detail(model, cluster, training, plan)
    mine = [m for m in found.moments if m.stage == stage]
    peak = max(mine, key=lambda m: m.allocated)
    phases: dict[str, float] = {}
    for moment in mine:
        phases[moment.phase] = max(phases.get(moment.phase, 0.0), moment.allocated / GIB)
    outside = ("fragmentation", "framework")
    return {
        "peak_allocated_gib": peak.allocated / GIB,
        "phases": phases,
        "categories": {
            k: v / GIB for k, v in sorted(peak.categories.items()) if v and k not in outside
        },
        "total_gib": peak.total / GIB,
        "not_in_dry_run_gib": {k: peak.categories[k] / GIB for k in outside},
    }


def _in_child(
    task: DryRunTask, time_limit_s: float, wanted: Callable[[], bool] | None
) -> RankResult:
    with tempfile.TemporaryDirectory(prefix="meshwright-dry-run-") as folder:
        task_path, result_path = Path(folder, "task.json"), Path(folder, "result.json")
        task_path.write_text(task.model_dump_json(), "utf-8")
        command = [sys.executable, "-m", "trials.dryrun.child", str(task_path), str(result_path)]
        lifeline, held = os.pipe()  # ends with this process, however that ends; the child watches
        child = subprocess.Popen(
            command,
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(folder),
            text=True,
            start_new_session=True,
        )
        try:
            output = _output(child, time_limit_s, wanted)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
        finally:
            os.close(lifeline)
            os.close(held)
        if not result_path.exists():
            last = "\n".join(output.strip().splitlines()[-5:])
            raise DryRunFailure("crashed", f"exit code {child.returncode}: {last}")
        outcome = json.loads(result_path.read_text("utf-8"))
    if "error" in outcome:
        raise DryRunFailure(outcome["error"]["kind"], outcome["error"]["message"])
    return RankResult.model_validate(outcome["result"])


def _output(
    child: "subprocess.Popen[str]", time_limit_s: float, wanted: Callable[[], bool] | None
) -> str:
    """What the child printed, once it has ended."""
    until = time.monotonic() + time_limit_s
    while True:
        left = max(until - time.monotonic(), 0.0)
        try:
            return child.communicate(timeout=left if wanted is None else min(left, POLL_S))[0]
        except subprocess.TimeoutExpired:
            if wanted is not None and not wanted():
                raise DryRunFailure("cancelled", "nobody waits for it any more") from None
            if time.monotonic() >= until:
                raise DryRunFailure("timeout", f"no result in {time_limit_s:.0f} s") from None


def _environment(folder: str) -> dict[str, str]:
    """This environment with the accelerator fixed and a single thread: nothing is computed.

    What the child puts into temporary files goes with its folder.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    fixed = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "TMPDIR": folder}
    return {**os.environ, **fixed, "DEEPSPEED_LOG_LEVEL": "error"}
