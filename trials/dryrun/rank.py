"""One rank of one dry run: trains two steps and says what was alive when."""

import time
from functools import partial

import torch

from trials.dryrun.classify import Classifier
from trials.dryrun.device import NAME
from trials.dryrun.engine import fake_tensors, join_fake_world, when_cut
from trials.dryrun.experts import expert_capacity, tell_capacity
from trials.dryrun.result import DryRunTask, Moment, RankResult
from trials.dryrun.states import tag_states
from trials.dryrun.tracker import LiveBytes
from trials.dryrun.trainer import build, needs_mpu
from trials.engines import DTYPES
from trials.model.build import own_tensor_parallel
from trials.model.transformer import parameter_count
from trials.parallel.mesh import build_mesh
from trials.parallel.mpu import Mpu


def run_rank(task: DryRunTask) -> RankResult:
    """Two optimizer steps of one rank; the first allocates lazily, the second is every other."""
    began = time.perf_counter()
    accelerator = join_fake_world(task.plan.world_size, task.rank, task.gpu_bytes)
    mesh = build_mesh(task.plan, task.rank)
    mpu = Mpu(mesh) if needs_mpu(task) else None
    classify = Classifier(task.model, task.plan, DTYPES[task.training.precision])
    live = LiveBytes(classify)
    accelerator.live_bytes = lambda: live.now[NAME]
    if task.model.is_moe:
        tell_capacity(live, expert_capacity(task.model, task.training, task.plan))
    if task.plan.tp > 1 and not own_tensor_parallel(task.plan.software):
        when_cut(partial(live.forget, NAME))
    with fake_tensors(), live:
        trainer = build(task, mesh, mpu)
        tag_states(live, trainer.engine)
        classify.shapes = {
            torch.Size(getattr(p, "ds_shape", p.shape))
            for p in trainer.engine.module.parameters()
            if p.dim() > 1
        }
        for step in range(2):

            def enter(phase: str, micro: str, step: int = step) -> None:
                classify.phase = phase
                live.enter(f"{phase}/{micro}/{step}")

            trainer.step(enter)
            enter("between", "none")
            tag_states(live, trainer.engine)
        return RankResult(
            rank=task.rank,
            stage=task.rank * task.plan.pp // task.plan.world_size,
            gpu=_moments(live, NAME),
            host=_moments(live, "cpu"),
            steady_bytes=live.now[NAME],
            steady_categories=dict(live.by_category[NAME]),
            parameters=parameter_count(trainer.engine.module),
            seconds=time.perf_counter() - began,
        )


def _moments(live: LiveBytes, device: str) -> tuple[Moment, ...]:
    found = []
    for key, peak in live.peaks[device].items():
        phase, micro, step = key.split("/")
        found.append(
            Moment(
                phase=phase,
                micro_batch=micro,
                step=int(step),
                total_bytes=peak.total,
                categories={k: v for k, v in peak.categories.items() if v},
            )
        )
    return tuple(found)
