"""The catalogue against figures that anybody can look up."""

import pytest

from cost_model import catalogue
from cost_model.calibration import Coefficients


def test_every_gpu_and_machine_is_valid_and_sourced() -> None:
    for name in catalogue.gpu_names():
        assert catalogue.gpu(name).source
    for name in catalogue.cluster_names():
        assert catalogue.cluster(name, 3).gpus == 3 * catalogue.cluster(name).gpus
        assert catalogue.cluster_source(name)


def test_published_figures_are_as_published() -> None:
    a100 = catalogue.gpu("a100-80g-sxm")
    assert (a100.bf16_tflops, a100.memory_bandwidth_gb_per_s, a100.sms) == (312, 2039, 108)
    dgx = catalogue.cluster("dgx-a100-80g", 2)
    assert dgx.network.node_bytes_per_s == pytest.approx(200e9)
    # two sockets of eight channels of 25.6 GB/s
    assert dgx.node.host_gb_per_s_per_socket * dgx.node.sockets == pytest.approx(16 * 25.6)
    v100 = catalogue.gpu("v100-32g-sxm2")
    assert v100.bf16_tflops is None
    assert v100.peak_flops("bf16") == v100.peak_flops("fp32")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="dgx-a100-80g"):
        catalogue.cluster("dgx-a1000", 1)
    with pytest.raises(KeyError, match="h100-sxm"):
        catalogue.gpu("h1000")


def test_every_machine_has_coefficients() -> None:
    coefficients = Coefficients.default()
    for name in catalogue.cluster_names():
        cluster = catalogue.cluster(name)
        assert coefficients.gpu(cluster.node.gpu).gemm_efficiency > 0
        assert coefficients.link(cluster.node.link.kind, cluster.node.gpu).efficiency > 0
        assert coefficients.network(cluster.network.kind).efficiency > 0
