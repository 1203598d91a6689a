"""Which communication nothing hides, and what share of a device a trial reached."""

import pytest

from tests.trials.conftest import make_trial
from trials.exposed import TimedWork, exposed_seconds, nccl_kind
from trials.outcome import Outcome
from trials.performance import catalogue_name, performance
from trials.result import KernelMeasurement, RankReport


def test_only_time_in_which_nothing_computes_is_exposed() -> None:
    # compute:        0---------4     6---8
    # all_reduce:            3-----5           2 s, of which 1 hidden
    # all_gather:                    5.5--------9  1.5 s bare
    found = exposed_seconds(
        [("all_reduce", (3.0, 5.0)), ("all_gather", (5.5, 9.0))], [(0.0, 4.0), (6.0, 8.0)]
    )
    assert found == pytest.approx({"all_reduce": 1.0, "all_gather": 1.5})


def test_two_collectives_at_once_are_not_waited_for_twice() -> None:
    found = exposed_seconds([("p2p", (0.0, 2.0)), ("all_reduce", (1.0, 4.0))], [])
    assert found == pytest.approx({"p2p": 2.0, "all_reduce": 2.0})


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "all_reduce",
        ),
        ("ncclKernel_ReduceScatter_RING_SIMPLE_Sum_half", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "p2p"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", None),
    ],
)
def test_kernels_of_nccl_are_told_by_their_names(kernel: str, kind: str | None) -> None:
    assert nccl_kind(kernel) == kind


def test_the_wait_for_a_collective_that_was_started_is_booked() -> None:
    class Work:
        def wait(self) -> str:
            return "done"

        def is_completed(self) -> bool:
            return True

    booked: list[float] = []
    work = TimedWork(Work(), booked.append)
    assert work.is_completed()
    assert booked == []
    assert work.wait() == "done"
    assert len(booked) == 1


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80g-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("Tesla T4", "t4"),
        ("cpu", None),
        ("Some Accelerator 9000", None),
    ],
)
def test_a_card_is_found_in_the_catalogue_by_its_drivers_name(
    device: str, card: str | None
) -> None:
    assert catalogue_name(device) == card


def test_model_flops_over_the_data_sheet_are_the_mfu() -> None:
    trial = make_trial("mfu", precision="bf16", dp=2, zero_stage=1)
    ranks = tuple(
        RankReport(rank=r, host="h", device="NVIDIA A100-SXM4-80GB", outcome=Outcome(kind="ok"))
        for r in range(2)
    )
    found = performance(trial, ranks, 0.5)
    assert found is not None
    # By hand: the 2-layer decoder of width 64 has 2 x (4 x 64 x 64 + 3 x 64 x 96) weights in its
    # products and 128 x 64 in its head; 6 FLOPs each and token, 4 sequences of 32 tokens; the
    # causal cores of 4 heads of 16 add 3 x 2 layers x 2 x 32 x 32 x 64.
    weights = 2 * (4 * 64 * 64 + 3 * 64 * 96) + 128 * 64
    flops = 4 * (6 * weights * 32 + 3 * 2 * 2 * 32 * 32 * 64)
    assert found.flops_per_s_per_rank == pytest.approx(flops / 0.5 / 2, rel=0.02)
    assert found.tokens_per_s == pytest.approx(4 * 32 / 0.5)
    assert found.mfu == pytest.approx(found.flops_per_s_per_rank / 312e12)


def test_a_processor_is_measured_against_its_own_fastest_product() -> None:
    trial = make_trial("mfu-cpu")
    product = KernelMeasurement(kind="gemm", m=100, n=100, k=100, seconds=1e-3)
    rank = RankReport(
        rank=0, host="h", device="cpu", outcome=Outcome(kind="ok"), kernels=(product,)
    )
    found = performance(trial, (rank,), 1.0)
    assert found is not None
    assert found.peak_flops_per_s == pytest.approx(2e9)
    assert performance(trial, (rank,), None) is None
