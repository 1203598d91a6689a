"""What a case says becomes the right claims and questions."""

from cost_model.plans import Recompute
from tests.benchmarks.cases.claims import claims_of
from tests.benchmarks.cases.judge import judge


def test_a_matrix_of_methods_is_a_claim_a_cell() -> None:
    case = {
        "model": "Qwen-1.8B..72B",
        "cluster": {"gpus": [2]},
        "observed": {"outcome": "matrix", "rows": ["80GBx2: 7B full ZeRO-3; 14B LoRA ZeRO-2"]},
    }
    full, lora = claims_of(case)
    assert (full.outcome, full.ask().plan.zero_stage, full.ask().training.lora) == ("fits", 3, None)
    assert lora.ask().training.lora is not None


def test_layouts_of_a_symptom_run_or_die_as_it_says() -> None:
    case = {
        "symptom": "on 8 GPUs: TP4 PP2 30 GB; TP1 PP8 OOM",
        "geometry": {"params_b": 13, "layers": 40, "hidden": 5120},
        "cluster": {"gpus": 8, "gpu": "V100-32GB"},
        "config": {"zero": 1},
        "observed": {"outcome": "mixed"},
    }
    ran, died = claims_of(case)
    assert (ran.outcome, died.outcome) == ("fits", "oom_gpu")
    assert (ran.ask().plan.tp, died.ask().plan.pp) == (4, 8)
    assert ran.ask().plan.recompute is Recompute.FULL


def test_each_number_of_gpus_has_its_own_host_memory() -> None:
    case = {
        "model": "Llama-2-7B",
        "symptom": "every rank loads full model",
        "cluster": {"gpus": [2, 8], "gpu": "B200", "host_ram_gb": [482, 1928]},
        "config": {"zero": 3},
        "observed": {"outcome": "oom_host"},
    }
    two, eight = (c.ask() for c in claims_of(case))
    assert eight.cluster.node.host_ram_gib == 4 * two.cluster.node.host_ram_gib
    assert two.training.whole_at_load


def test_the_cost_of_a_bucket_is_its_bytes() -> None:
    # 5e8 elements of two bytes, twice with overlap: 954 MiB less without
    case = {
        "config": {
            "zero": 2,
            "rows": [
                {"contiguous": True, "overlap": True, "bucket": 5e8, "mb": 21152},
                {"contiguous": True, "overlap": False, "bucket": 5e8, "mb": 21152 - 954},
            ],
        },
        "observed": {"outcome": "fits"},
    }
    judged = judge(case)
    assert [v.claim.outcome for v in judged.verdicts] == ["saves"]
    assert judged.right
