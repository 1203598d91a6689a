"""The rules against the real engine: what it trains is legal, what it refuses is not."""

import json
import subprocess
import sys
from typing import Any

import pytest

from cost_model.plans import Plan, Software
from planner.export import ds_config
from planner.request import PlanRequest
from planner.rules import World, violations

pytestmark = pytest.mark.slow

DENSE = {"hidden": 32, "layers": 4, "heads": 4, "vocab": 64, "intermediate": 64}
EXPERTS = DENSE | {"experts": 4, "top_k": 1}
ZERO3 = {"zero_stage": 3}

# name, kind of model, knobs, precision, the rule that refuses it (None where the engine trains it)
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], str | None]] = [
    ("zero 0", "llama", {"dp": 2}, {}, None),
    ("zero 1", "llama", {"dp": 2, "zero_stage": 1}, {}, None),
    ("zero 2", "llama", {"dp": 2, "zero_stage": 2}, {}, None),
    ("zero 3", "llama", {"dp": 2, **ZERO3}, {}, None),
    ("zero 3 hpz", "llama", {"dp": 4, "hpz": 2, **ZERO3}, {}, None),
    ("zero 3 odd hpz", "llama", {"dp": 4, "hpz": 3, **ZERO3}, {}, "hpz"),
    ("autotp zero 1", "llama", {"tp": 2, "zero_stage": 1}, {}, None),
    ("autotp zero 2 dp", "llama", {"tp": 2, "dp": 2, "zero_stage": 2}, {}, None),
    ("autotp zero 3", "llama", {"tp": 2, "dp": 2, **ZERO3}, {}, None),
    ("pipeline zero 0", "pipeline", {"pp": 2}, {"precision": "bf16"}, None),
    ("pipeline zero 1", "pipeline", {"pp": 2, "dp": 2, "zero_stage": 1}, {}, None),
    ("pipeline zero 2", "pipeline", {"pp": 2, "zero_stage": 2}, {}, "pipeline-zero"),
    ("pipeline zero 3", "pipeline", {"pp": 2, **ZERO3}, {}, "pipeline-zero"),
    ("experts zero 2", "experts", {"dp": 2, "ep": 2, "zero_stage": 2}, {}, None),
    ("experts zero 3", "experts", {"dp": 2, "ep": 2, **ZERO3}, {}, "moe-zero"),
    ("experts ep 3", "experts", {"dp": 3, "ep": 3, "zero_stage": 1}, {}, "experts-ep"),
    ("experts ep over dp", "experts", {"dp": 3, "ep": 2, "zero_stage": 1}, {}, "ep-dp"),
    (
        "fp32 accumulation zero 0",
        "llama",
        {"dp": 2},
        {"precision": "bf16", "fp32_grad_accum": True},
        "fp32-accumulation",
    ),
    (
        "fp32 accumulation zero 1",
        "llama",
        {"dp": 2, "zero_stage": 1},
        {"precision": "bf16", "fp32_grad_accum": True},
        None,
    ),
    (
        "partial offload zero 2",
        "llama",
        {"dp": 2, "zero_stage": 2, "offload_optimizer": "cpu", "offload_ratio": 0.5},
        {},
        "offload-ratio",
    ),
    ("16-bit traffic zero 2", "llama", {"dp": 2, "zero_stage": 2, "comm_16bit": True}, {}, None),
    ("16-bit traffic zero 3", "llama", {"dp": 2, "comm_16bit": True, **ZERO3}, {}, None),
    ("batch", "llama", {"dp": 2, "micro_batch": 5}, {}, "batch-triple"),
]


def _world(kind: str, ranks: int, training: dict[str, Any]) -> World:
    batch = {"seq_len": 8, "global_batch": 12, "precision": "fp32", "attention": "sdpa"}
    sheet = {"kind": "memory", "bandwidth_gb_per_s": 5}
    request = PlanRequest.parse(
        {
            "model": EXPERTS if kind == "experts" else DENSE,
            "cluster": {"gpu": "cpu", "gpus_per_node": ranks, "link": sheet, "host_ram_gib": 16},
            "training": batch | training,
        }
    )
    return request.resolve().world


def _plan(kind: str, knobs: dict[str, Any]) -> Plan:
    software = Software.DEEPSPEED_PIPELINE if kind == "pipeline" else Software.DEEPSPEED
    plan = Plan(software=software, **knobs)
    return plan.model_copy(update={"grad_accum": 12 // (plan.dp * plan.micro_batch)})


def _config(world: World, plan: Plan) -> dict[str, Any]:
    config = ds_config(world.model, world.cluster, world.training, plan)
    config["optimizer"]["params"]["torch_adam"] = True  # the fused one would have to be compiled
    if "train_batch_size" in config:
        config["train_batch_size"] = world.training.global_batch * plan.tp
    if plan.offload_ratio < 1:
        config["zero_optimization"]["offload_optimizer"]["ratio"] = plan.offload_ratio
    return config


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    asked = []
    for name, kind, knobs, training, _ in CASES:
        plan = _plan(kind, knobs)
        config = _config(_world(kind, plan.world_size, training), plan)
        asked.append(
            {
                "name": name,
                "kind": kind,
                "world": plan.world_size,
                "pp": plan.pp,
                "ep": plan.ep,
                "config": config,
            }
        )
    done = subprocess.run(
        [sys.executable, "-m", "tests.planner.rules.engine"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


@pytest.mark.parametrize(("name", "kind", "knobs", "training", "refused_by"), CASES)
def test_the_engine_and_the_rules_agree(
    verdicts: dict[str, str],
    name: str,
    kind: str,
    knobs: dict[str, Any],
    training: dict[str, Any],
    refused_by: str | None,
) -> None:
    plan = _plan(kind, knobs)
    broken = [v.rule for v in violations(_world(kind, plan.world_size, training), plan)]
    if refused_by is None:
        assert verdicts[name] == "ok"
        assert broken == []
    else:
        assert verdicts[name] not in {"ok", "no result"}
        assert refused_by in broken
