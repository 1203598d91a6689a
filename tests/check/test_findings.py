"""One test for each kind of finding: the code, the severity and the mended config."""

import json
from typing import Any

import pytest

from cost_model import catalogue
from planner.check import Report, check
from planner.check.rules import rules
from planner.check.schema import DEFAULT_VERSION
from tests.check import installed


def _check(config: Any, **situation: Any) -> Report:
    return check(json.dumps(config), **situation)


def _codes(report: Report, severity: str | None = None) -> set[str]:
    return {f.code for f in report.findings if severity in (None, f.severity)}


BASE: dict[str, Any] = {"train_batch_size": 8}


def _zero(**block: Any) -> dict[str, Any]:
    return BASE | {"zero_optimization": block}


def test_a_plain_config_has_no_error_and_no_warning() -> None:
    report = _check(
        BASE
        | {
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
            "zero_optimization": {"stage": 2, "overlap_comm": True},
        }
    )
    assert report.engine_accepts
    assert not _codes(report, "error") | _codes(report, "warning")
    assert report.fixed["zero_optimization"] == {"stage": 2, "overlap_comm": True}


def test_the_json_has_exactly_the_promised_keys() -> None:
    data = _check({"train_batch_size": "8"}).to_json()
    assert set(data) == {"engine_accepts", "findings", "fixed"}
    for finding in data["findings"]:
        assert set(finding) == {"severity", "code", "path", "reason", "mend"}


@pytest.mark.parametrize(
    ("config", "code", "fixed"),
    [
        ({"zero_optimisation": {"stage": 3}}, "unknown-key", {"zero_optimization": {"stage": 3}}),
        (
            {"zero_optimization": {"stage": 2, "reduce_buket_size": 1000}},
            "unknown-key",
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000}},
        ),
        ({"stage": 3}, "misplaced-key", {"zero_optimization": {"stage": 3}}),
        (
            {"overlap_comm": True, "zero_optimization": {"stage": 1}},
            "misplaced-key",
            {"zero_optimization": {"stage": 1, "overlap_comm": True}},
        ),
        (
            {"fp16": {"enabled": True, "gradient_clipping": 1.0}},
            "misplaced-key",
            {"fp16": {"enabled": True}, "gradient_clipping": 1.0},
        ),
        (
            {"tensor_parallel": {"tp_size": 2}},
            "unknown-key",
            {"tensor_parallel": {"autotp_size": 2}},
        ),
        ({"pipeline_parallel": {"pp_size": 4}}, "no-effect-key", {}),
        ({"elasticity": {"enabled": True}}, "removed-key", {}),
        (
            {"zero_optimization": {"stage": 2, "cpu_offload": True}},
            "deprecated-key",
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
        ),
        ({"steps_per_print ": 5}, "whitespace-key", {"steps_per_print": 5}),
        ({"zero_optimization": True}, "deprecated-form", {"zero_optimization": {"stage": 1}}),
        (
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": "5e8"}},
            "string-number",
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 500000000}},
        ),
        (
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5.5}},
            "not-an-integer",
            {"zero_optimization": {"stage": 2, "reduce_bucket_size": 6}},
        ),
        (
            {"zero_optimization": {"stage": 4}},
            "out-of-range",
            {"zero_optimization": {"stage": 3}},
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": "cpu"}},
            "wrong-type",
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
        ),
        ({"fp16": True}, "wrong-type", {"fp16": {"enabled": True}}),
        (
            {"bf16": {"enabled": "true"}},
            "string-flag",
            {"bf16": {"enabled": True}},
        ),
        (
            {"optimizer": {"type": "AdamW", "params": {"lr": "1e-4"}}},
            "string-number",
            {"optimizer": {"type": "AdamW", "params": {"lr": 0.0001}}},
        ),
        (
            {"zero_optimization": {"stage": 3, "sub_group_size": 0}},
            "degenerate-value",
            {"zero_optimization": {"stage": 3}},
        ),
    ],
)
def test_a_key_or_value_is_named_and_mended(
    config: dict[str, Any], code: str, fixed: dict[str, Any]
) -> None:
    report = _check(BASE | config)
    assert code in _codes(report)
    assert report.fixed == BASE | fixed
    assert installed.refusal(report.fixed, 1) is None


@pytest.mark.parametrize(
    ("config", "situation", "code", "severity"),
    [
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, {}, "precision-both", "error"),
        (_zero(stage=2, offload_param={"device": "cpu"}), {}, "offload-param-stage", "warning"),
        (_zero(stage=0, offload_optimizer={"device": "cpu"}), {}, "offload-optimizer-stage",
         "warning"),
        (_zero(stage=2, offload_optimizer={"device": "nvme", "nvme_path": "/n"}), {},
         "offload-nvme-stage", "warning"),
        (_zero(stage=3, offload_optimizer={"device": "nvme"}), {}, "nvme-path-missing", "error"),
        (_zero(stage=2, stage3_prefetch_bucket_size=5), {}, "no-effect-at-stage", "warning"),
        (_zero(stage=2), {"facts": {"pp": 2}}, "pipeline-zero", "error"),
        ({"tensor_parallel": {"autotp_size": 2}}, {"facts": {"pp": 2}}, "autotp-pipeline",
         "error"),
        ({"tensor_parallel": {"tensor_parallel": {"tp_size": 2}}}, {}, "autotp-nested", "error"),
        (_zero(stage=3) | {"tensor_parallel": {"autotp_size": 2}},
         {"deepspeed_version": "0.17.6"}, "autotp-zero3", "error"),
        (_zero(stage=3) | {"tensor_parallel": {"autotp_size": 2}}, {}, "autotp-zero3", "warning"),
        (_zero(stage=3), {"facts": {"native_moe": True}}, "moe-zero3", "error"),
        (_zero(stage=2), {"deepspeed_version": "0.16.0"}, "no-sync-version", "error"),
        (_zero(stage=2, overlap_comm=True), {"deepspeed_version": "0.16.9"}, "overlap-comm-nan",
         "warning"),
        ({"activation_checkpointing": {"partition_activations": True}}, {},
         "activation-checkpointing-unread", "warning"),
        ({"activation_checkpointing": {"contiguous_memory_optimization": True}}, {},
         "contiguous-needs-partition", "error"),
        ({"optimizer": {"type": "OneBitAdam"}}, {}, "removed-optimizer", "error"),
        ({"scheduler": {"type": "Cosine"}}, {}, "unknown-scheduler", "error"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}, {},
         "warmup-zero", "error"),
        ({"gradient_clipping": -1}, {}, "negative-clipping", "error"),
        ({"sequence_parallel_size": 2, "train_batch_size": 8}, {}, "ulysses-zero", "warning"),
        ({"fp16": {"enabled": True}}, {"model": "llama-2-7b"}, "fp16-of-bf16-model", "warning"),
        ({"bf16": {"enabled": True}}, {"cluster": "dgx-2"}, "bf16-without-hardware", "error"),
        (_zero(stage=3), {"model": "mixtral-8x7b"}, "moe-leaf-modules", "warning"),
        (_zero(stage=2), {"model": "mixtral-8x7b"}, "weights-replicated", "error"),
        ({"pipeline": {"stages": 4}}, {}, "pipeline-block-alone", "warning"),
    ],
)  # fmt: skip
def test_a_combination_is_reported(
    config: dict[str, Any], situation: dict[str, Any], code: str, severity: str
) -> None:
    known = dict(situation)
    if "model" in known:
        known["model"] = catalogue.model(known["model"])
    if "cluster" in known:
        known["cluster"] = catalogue.cluster(known["cluster"], 1)
    report = _check(BASE | config, **known)
    assert code in _codes(report, severity), report.findings


def test_every_rule_says_where_it_was_seen() -> None:
    for rule in rules():
        assert rule.evidence
        assert rule.reason
        assert rule.mend


@pytest.mark.parametrize(
    ("config", "world", "words"),
    [
        (
            {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
             "gradient_accumulation_steps": 8},
            4,
            ["train_batch_size 64", "gradient_accumulation_steps 4",
             "train_micro_batch_size_per_gpu 1", "2 GPUs"],
        ),
        (
            {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2,
             "gradient_accumulation_steps": 18},
            7,
            ["252 or 266"],
        ),
        ({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 16}, 2, ["32", "1 GPU"]),
        ({"train_batch_size": 4}, 8, ["micro-batch of 0"]),
    ],
)  # fmt: skip
def test_the_ways_to_mend_a_batch_are_named_and_the_mended_one_is_accepted(
    config: dict[str, Any], world: int, words: list[str]
) -> None:
    report = _check(config, world_size=world)
    assert not report.engine_accepts
    told = " ".join(f"{f.reason} {f.mend}" for f in report.findings)
    for word in words:
        assert word in told
    assert installed.refusal(report.fixed, world) is None


def test_with_autotp_the_real_batch_is_told() -> None:
    config = {
        "tensor_parallel": {"autotp_size": 4},
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 4,
    }
    report = _check(config, world_size=8)
    found = next(f for f in report.findings if f.code == "batch-tensor-parallel")
    assert "256" in found.reason
    assert "64" in found.reason


def test_auto_is_no_error_where_trainer_resolves_it() -> None:
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": "auto"},
    }
    trainer = _check(config, software="hf_trainer")
    assert trainer.engine_accepts
    assert not _codes(trainer, "error")
    assert "auto-not-resolved" in _codes(trainer, "warning")
    assert "auto-not-resolved" in _codes(_check(config, software="accelerate"), "error")
    plain = _check(config, software="deepspeed")
    assert not plain.engine_accepts
    assert "auto-outside-trainer" in _codes(plain, "error")
    assert installed.refusal(plain.fixed, 1) is None


def test_trainer_arguments_that_differ_are_all_named() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": "8",
        "fp16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    }
    arguments = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 8,
        "fp16": False,
        "learning_rate": 5e-5,
    }
    report = _check(config, software="hf_trainer", trainer_args=arguments)
    paths = {f.path for f in report.findings if f.code == "trainer-mismatch"}
    assert paths == {"train_micro_batch_size_per_gpu", "fp16.enabled", "optimizer.params.lr"}
    assert report.fixed["gradient_accumulation_steps"] == 8


def test_a_version_without_a_schema_says_how_far_the_check_goes() -> None:
    report = _check(BASE, deepspeed_version="0.14.4")
    assert "version-reach" in _codes(report)
    assert "version-reach" not in _codes(_check(BASE, deepspeed_version=DEFAULT_VERSION))


def test_a_key_of_another_version_is_told_from_a_misspelt_one() -> None:
    report = _check(_zero(stage=2, zenflow={"topk_ratio": 0.1}), deepspeed_version="0.16.0")
    assert "other-version-key" in _codes(report, "error")


BLOG = """{
  "train_batch_size": "auto",
  "gradient_accumulation_steps": "auto",
  "fp16": {"enabled": true, "loss_scale": 0, "hysteresis": 2, "min_loss_scale": 1},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "allgather_partitions": true,
    "allgather_bucket_size": 5e8
  },
  "activation_checkpointing": {
    "partition_activations": true,
    "cpu_checkpointing": true,
    "contiguous_memory_optimization": true,
    "number_checkpoints": 12
  },
  "tensor_parallel": {"tp_size": 2},
  "pipeline_parallel": {"pp_size": 4}
}"""


def test_every_flaw_of_the_blog_config_is_found_and_a_plan_offered() -> None:
    cluster = catalogue.cluster("a100-80g-pcie", 1)
    node = cluster.node.model_copy(update={"gpus_per_node": 4})
    report = check(
        BLOG,
        model=catalogue.model("llama-2-13b"),
        cluster=cluster.model_copy(update={"node": node}),
    )
    wanted = {
        ("auto-outside-trainer", "train_batch_size"),
        ("auto-outside-trainer", "gradient_accumulation_steps"),
        ("fp16-of-bf16-model", "fp16.enabled"),
        ("allgather-partitions-is-zero", "zero_optimization.allgather_partitions"),
        ("float-literal", "zero_optimization.allgather_bucket_size"),
        ("activation-checkpointing-unread", "activation_checkpointing"),
        ("unknown-key", "tensor_parallel.tp_size"),
        ("no-effect-key", "pipeline_parallel"),
        ("pipeline-zero", "zero_optimization.stage"),
        ("autotp-pipeline", "tensor_parallel.autotp_size"),
        ("degrees-beyond-world", ""),
        ("memory-fits", ""),
        ("memory-one-change", ""),
        ("plan-near", ""),
    }
    assert wanted <= {(f.code, f.path) for f in report.findings}
    assert not report.engine_accepts
    assert installed.refusal(report.fixed, 4) is None
    assert report.fixed["tensor_parallel"] == {"autotp_size": 2}
    assert "pipeline_parallel" not in report.fixed


def test_where_it_does_not_fit_the_phase_and_the_missing_bytes_are_told() -> None:
    report = _check(
        {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
         "zero_optimization": {"stage": 1}},
        model=catalogue.model("llama-2-70b"),
        cluster=catalogue.cluster("dgx-a100-80g", 1),
    )  # fmt: skip
    over = next(f for f in report.findings if f.code == "memory-overflow")
    assert "are missing; it dies in" in over.reason
    assert report.has_error


def test_recompute_that_the_run_has_counts_in_the_memory() -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 3}}  # fmt: skip
    known: dict[str, Any] = {
        "model": catalogue.model("llama-2-70b"),
        "cluster": catalogue.cluster("dgx-a100-80g", 8),
    }
    assert "memory-overflow" in _codes(_check(config, **known))
    assert "memory-overflow" not in _codes(_check(config, **known, facts={"recompute": True}))


def test_stages_that_cut_shards_of_a_sequence_are_warned_of() -> None:
    """The engine cuts what stages send by default wherever there are tensor-parallel ranks."""
    facts = {"pp": 2, "tp": 2, "sequence_parallel": True}
    known: dict[str, Any] = {"software": "megatron_deepspeed", "world_size": 8}
    report = _check(_zero(stage=1), facts=facts, **known)
    assert "pipeline-cuts-shards" in _codes(report, "warning")
    assert report.fixed["pipeline"] == {"pipe_partitioned": False, "grad_partitioned": False}
    again = _check(report.fixed, facts=facts, **known)
    assert "pipeline-cuts-shards" not in _codes(again)
    for one in ({"sequence_parallel": False}, {"pp": 1}, {"tp": 1}):
        assert "pipeline-cuts-shards" not in _codes(
            _check(_zero(stage=1), facts=facts | one, **known)
        )
