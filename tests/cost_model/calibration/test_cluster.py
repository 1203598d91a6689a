import numpy as np
import pytest

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import (
    FACTORS,
    ClusterCalibration,
    cluster_key,
    later,
    of_cluster,
    scaled,
    uncalibrated,
)
from cost_model.catalogue import cluster, model
from cost_model.plans import Plan, PlanTable
from cost_model.predict import predict
from cost_model.specs import TrainingSpec

A100 = cluster("dgx-a100-80g", 4)
TRAINING = TrainingSpec(seq_len=4096, global_batch=64)
TABLE = PlanTable.from_plans([Plan(dp=32, zero_stage=3, nodes=4, grad_accum=2)])


def moved(**log_factors: float) -> ClusterCalibration:
    values = tuple(log_factors.get(name, 0.0) for name in FACTORS)
    return uncalibrated(A100).model_copy(update={"log_factors": values})


def test_before_any_trial_nothing_changes() -> None:
    shipped = predict(model("llama-2-7b"), A100, TRAINING, TABLE)
    own = uncalibrated(A100)
    same = predict(
        model("llama-2-7b"),
        A100,
        TRAINING,
        TABLE,
        own.apply(Coefficients.default()),
        own.apply_memory(),
    )
    assert same.step.seconds == pytest.approx(shipped.step.seconds)
    assert same.memory.total_bytes == pytest.approx(shipped.memory.total_bytes)


def test_a_factor_multiplies_the_figures_it_names_and_no_others() -> None:
    shipped = Coefficients.default()
    halved = moved(link_bandwidth=np.log(0.5)).apply(shipped)
    for kind, link in shipped.links.items():
        assert halved.links[kind].efficiency == pytest.approx(0.5 * link.efficiency)
        assert halved.links[kind].base_us == link.base_us
    assert halved.gpus == shipped.gpus
    assert halved.networks == shipped.networks


def test_every_factor_names_fields_that_exist() -> None:
    shipped = Coefficients.default()
    groups = {
        "gpu": shipped.architectures["ampere"],
        "link": shipped.links["nvswitch"],
        "network": shipped.networks["infiniband"],
        "software": shipped.software["deepspeed"],
        "host": shipped.host,
    }
    for factor in FACTORS.values():
        for group, field in factor.places:
            assert field in type(groups[group]).model_fields


def test_the_share_of_traffic_that_hides_never_passes_one() -> None:
    known = moved(overlap=3.0).apply(Coefficients.default())
    assert all(s.dp_overlap <= 1 for s in known.software.values())


def test_more_nodes_are_the_same_kind_of_cluster_and_other_gpus_are_not() -> None:
    assert cluster_key(A100) == cluster_key(cluster("dgx-a100-80g", 1))
    assert cluster_key(A100) != cluster_key(cluster("dgx-a100-40g", 4))
    node = A100.node.model_copy(update={"link": cluster("a100-80g-pcie").node.link})
    assert cluster_key(A100) != cluster_key(A100.model_copy(update={"node": node}))


def test_prices_and_sources_do_not_make_another_cluster() -> None:
    gpu = A100.node.gpu.model_copy(update={"usd_per_hour": 1.0, "source": "elsewhere"})
    node = A100.node.model_copy(update={"gpu": gpu})
    assert cluster_key(A100) == cluster_key(A100.model_copy(update={"node": node}))


def test_it_survives_json() -> None:
    calibration = moved(gemm=0.123456789)
    again = ClusterCalibration.model_validate_json(calibration.model_dump_json())
    assert again == calibration


def test_a_gpu_that_was_fitted_has_narrower_priors_than_one_that_was_not() -> None:
    known = uncalibrated(A100).deviations["gemm"]
    unknown = uncalibrated(cluster("a6000-box")).deviations["gemm"]
    processor = uncalibrated(cluster("local-cpu")).deviations["gemm"]
    assert known < unknown < processor


def test_the_next_campaign_begins_a_little_less_sure() -> None:
    before = moved(gemm=0.3)
    after = later(before)
    assert after.log_factors == before.log_factors
    assert all(after.deviations[n] > before.deviations[n] for n in FACTORS)


def test_what_other_clusters_need_is_left_out_without_effect() -> None:
    shipped = Coefficients.default()
    x = np.linspace(-0.5, 0.5, len(FACTORS))
    whole = predict(model("llama-2-7b"), A100, TRAINING, TABLE, scaled(shipped, x))
    own = predict(model("llama-2-7b"), A100, TRAINING, TABLE, scaled(of_cluster(shipped, A100), x))
    assert own.step.seconds == pytest.approx(whole.step.seconds)
