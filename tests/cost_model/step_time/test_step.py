"""Step time against published runs, and properties that hold whatever the coefficients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model import catalogue
from cost_model.calibration import Coefficients
from cost_model.collectives import Ring, Topology
from cost_model.flops import step_flops
from cost_model.plans import Plan, PlanTable
from cost_model.prediction import STEP_PARTS
from cost_model.specs import ClusterSpec, Lora, ModelSpec, TrainingSpec, explicit
from cost_model.step import step_time


def gpt(layers: int, hidden: int, heads: int) -> ModelSpec:
    return explicit(
        hidden=hidden, layers=layers, heads=heads, vocab=51200, gated=False, max_seq_len=2048
    )


# Narayanan et al. 2021 (arXiv 2104.04473), table 1: layers, hidden, heads, TP, PP, GPUs, batch,
# achieved teraFLOP/s per GPU by its equation 3, which counts full recomputation.
SC21 = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (30, 3072, 32, 2, 1, 64, 512, 138),
    (36, 4096, 32, 4, 1, 128, 512, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 138),
    (60, 10240, 80, 8, 4, 1024, 1792, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 163),
]
MICRO = {1: 16, 2: 4, 4: 2, 8: 1, 16: 1, 35: 1, 64: 1}


@pytest.mark.parametrize("row", SC21, ids=lambda row: f"{row[0]}x{row[1]}")
def test_megatron_on_selene_takes_the_published_time_within_a_fifth(row: tuple[int, ...]) -> None:
    layers, hidden, heads, tp, pp, gpus, batch, teraflops = row
    dp = gpus // (tp * pp)
    micro = max(b for b in (1, 2, 4, 8, 16) if b <= MICRO[pp] and batch % (dp * b) == 0)
    table = PlanTable.from_plans(
        [
            Plan.model_validate(
                {
                    "software": "megatron",
                    "nodes": gpus // 8,
                    "tp": tp,
                    "pp": pp,
                    "dp": dp,
                    "micro_batch": micro,
                    "grad_accum": batch // (dp * micro),
                    "recompute": "full",
                    "overlap_comm": False,
                }
            )
        ]
    )
    training = TrainingSpec(
        seq_len=2048,
        global_batch=batch,
        precision="fp16",
        attention="fused_softmax",
        fused_norm=True,
        dropout=0.1,
    )
    # equation 3: 96 B s l h^2 (1 + s / 6h + V / 16lh)
    s, v = 2048, 51200
    flops = 96.0 * batch * s * layers * hidden**2
    flops *= 1 + s / (6 * hidden) + v / (16 * layers * hidden)
    published = flops / (gpus * teraflops * 1e12)
    cluster = catalogue.cluster("dgx-a100-80g", gpus // 8)
    predicted = step_time(gpt(layers, hidden, heads), cluster, training, table).seconds[0]
    assert predicted == pytest.approx(published, rel=0.2)


def plans() -> PlanTable:
    rows = []
    for tp, pp, dp, zero, extra in (
        (1, 1, 16, 3, {}),
        (1, 1, 16, 2, {"recompute": "full"}),
        (2, 1, 8, 1, {"sequence_parallel": True, "software": "megatron"}),
        (2, 4, 2, 1, {"software": "megatron", "vpp": 2}),
        (4, 2, 2, 0, {"software": "megatron_deepspeed", "recompute": "full"}),
        (1, 4, 4, 1, {"software": "deepspeed_pipeline", "first_stage_layers": 9}),
        (1, 1, 8, 3, {"sp": 2}),
        (1, 1, 8, 3, {"cp": 2, "software": "fsdp", "compile": True}),
        (1, 1, 16, 3, {"offload_optimizer": "cpu", "offload_param": "cpu"}),
        (1, 1, 16, 2, {"offload_optimizer": "cpu"}),
        (1, 1, 16, 3, {"hpz": 8, "quantized_weights": True, "quantized_gradients": True}),
    ):
        plan = {"nodes": 2, "tp": tp, "pp": pp, "dp": dp, "zero_stage": zero, "grad_accum": 8}
        rows.append(Plan.model_validate(plan | extra))
    return PlanTable.from_plans(rows)


TRAINING = TrainingSpec(seq_len=2048, global_batch=128)


def test_parts_are_never_negative_and_sum_to_the_step() -> None:
    for name in ("llama-2-7b", "mixtral-8x7b", "bert-large"):
        for machine in catalogue.cluster_names():
            cluster = catalogue.cluster(machine, 2)
            step = step_time(catalogue.model(name), cluster, TRAINING, plans())
            assert set(step.parts) == set(STEP_PARTS)
            assert all((part >= 0).all() for part in step.parts.values())
            assert np.sum(list(step.parts.values()), axis=0) == pytest.approx(step.seconds)
            assert (step.mfu > 0).all()
            assert (step.mfu <= step.hfu).all()
            assert (step.hfu < 1).all()


def faster(cluster: ClusterSpec, what: str, factor: float) -> ClusterSpec:
    node = cluster.node
    if what == "network":
        better = cluster.network.gbps_per_port * factor
        network = cluster.network.model_copy(update={"gbps_per_port": better})
        return cluster.model_copy(update={"network": network})
    if what == "link":
        link = node.link.model_copy(
            update={"bandwidth_gb_per_s": node.link.bandwidth_gb_per_s * factor}
        )
        node = node.model_copy(update={"link": link})
    elif what == "pcie":
        node = node.model_copy(update={"pcie_gb_per_s": node.pcie_gb_per_s * factor})
    elif what == "host":
        rate = node.host_gb_per_s_per_socket * factor
        node = node.model_copy(update={"host_gb_per_s_per_socket": rate})
    else:
        gpu = node.gpu
        field = {"memory": "memory_bandwidth_gb_per_s", "flops": "bf16_tflops"}[what]
        gpu = gpu.model_copy(update={field: getattr(gpu, field) * factor})
        node = node.model_copy(update={"gpu": gpu})
    return cluster.model_copy(update={"node": node})


@settings(max_examples=30, deadline=None)
@given(
    what=st.sampled_from(["network", "link", "pcie", "host", "memory", "flops"]),
    factor=st.floats(1.01, 20.0),
    machine=st.sampled_from(["dgx-a100-80g", "dgx-h100", "4090-box", "dgx-1"]),
)
def test_more_of_any_resource_never_makes_a_step_slower(
    what: str, factor: float, machine: str
) -> None:
    cluster = catalogue.cluster(machine, 2)
    training = TRAINING
    if cluster.node.gpu.bf16_tflops is None and what == "flops":
        return
    model = catalogue.model("llama-2-7b")
    before = step_time(model, cluster, training, plans()).seconds
    after = step_time(model, faster(cluster, what, factor), training, plans()).seconds
    # a slower part may be what another one hid behind, up to its interference
    assert (after <= before * (1 + 1e-9)).all()


def test_a_table_gives_each_plan_what_it_gets_alone() -> None:
    table = plans()
    model, cluster = catalogue.model("mixtral-8x7b"), catalogue.cluster("dgx-h100", 2)
    together = step_time(model, cluster, TRAINING, table).seconds
    alone = [
        step_time(model, cluster, TRAINING, PlanTable.from_plans([table.plan(i)])).seconds[0]
        for i in range(len(table))
    ]
    assert together == pytest.approx(alone)


def test_model_flops_follow_the_published_formula() -> None:
    # arXiv 2205.05198, equation 7: 72 B s L h^2 (1 + s / 6h + V / 12hL), which counts the whole
    # attention square; the mask lets half of it through
    model = gpt(96, 12288, 96)
    training = TrainingSpec(seq_len=2048, global_batch=1)
    s, h, layers, v = 2048, 12288, 96, 51200
    published = 72 * s * layers * h**2 * (1 + s / (12 * h) + v / (12 * h * layers))
    assert step_flops(model, training) == pytest.approx(published, rel=1e-3)


def test_full_recompute_costs_one_more_forward_pass() -> None:
    table = PlanTable.from_columns(
        2, software=3, dp=8, micro_batch=4, grad_accum=16, recompute=[0, 2]
    )
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    step = step_time(catalogue.model("llama-2-13b"), cluster, TRAINING, table)
    assert step.seconds[1] / step.seconds[0] == pytest.approx(4 / 3, rel=0.05)


def test_a_large_vocabulary_makes_the_last_stage_the_slow_one() -> None:
    geometry = {"hidden": 4096, "layers": 32, "heads": 32}
    table = PlanTable.from_columns(
        2, software=3, pp=4, dp=2, grad_accum=64, last_stage_layers=[0, 5]
    )
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    small = step_time(explicit(**geometry, vocab=32000), cluster, TRAINING, table).seconds
    large = step_time(explicit(**geometry, vocab=256000), cluster, TRAINING, table).seconds
    assert small[1] > small[0]  # the other stages take on what the last one gives away
    assert large[1] < large[0]


def test_lora_is_faster_than_full_fine_tuning_and_moves_less() -> None:
    table = PlanTable.from_columns(1, dp=8, zero_stage=2, grad_accum=8)
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    model = catalogue.model("llama-2-7b")
    full = step_time(model, cluster, TRAINING, table)
    adapters = TRAINING.model_copy(update={"lora": Lora(rank=16)})
    lora = step_time(model, cluster, adapters, table)
    assert lora.seconds[0] < full.seconds[0]
    assert lora.traffic_bytes["dp_comm"][0] < 0.05 * full.traffic_bytes["dp_comm"][0]


def test_offloading_the_optimizer_is_bound_by_host_memory_and_pcie() -> None:
    # Llama-2-7B on one GPU. 6.74e9 parameters x (28 bytes of Adam + 8 of unscaling the gradient)
    # over an eighth of 2 x 204.8 GB/s x 0.45; fp32 weights back over PCIe, which passes that too
    table = PlanTable.from_columns(1, zero_stage=1, grad_accum=1, offload_optimizer=1)
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    step = step_time(catalogue.model("llama-2-7b"), cluster, TRAINING, table)
    share = 2 * 204.8e9 * 0.45 / 8
    host, back = 6.738e9 * 36 / share, 6.738e9 * 4 / min(31.5e9 * 0.8, share)
    gradients = 6.738e9 * 4 / min(31.5e9 * 0.8, share)
    assert host + back <= step.parts["offload"][0] <= host + back + gradients


def test_parameters_on_flash_cost_more_than_in_host_memory_and_that_more_than_none() -> None:
    table = PlanTable.from_columns(
        3, zero_stage=3, dp=8, offload_optimizer=1, offload_param=[0, 1, 2], grad_accum=2
    )
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    seconds = step_time(catalogue.model("llama-2-13b"), cluster, TRAINING, table).seconds
    assert seconds[0] < seconds[1] < seconds[2]


def test_zero_3_without_overlap_waits_for_all_its_traffic_under_deepspeed_alone() -> None:
    model = catalogue.model("llama-2-7b")
    cluster = catalogue.cluster("dgx-a100-80g", 2)
    training = TrainingSpec(seq_len=2048, global_batch=16)
    exposed = {}
    for software in (0, 4):
        table = PlanTable.from_columns(
            4,
            software=software,
            dp=16,
            zero_stage=3,
            micro_batch=[1, 4, 1, 4],
            overlap_comm=[True, True, False, False],
        )
        exposed[software] = step_time(model, cluster, training, table).parts["dp_comm"]
    deepspeed, fsdp = exposed[0], exposed[4]
    assert deepspeed[1] < deepspeed[0] < deepspeed[2]
    assert deepspeed[2] == pytest.approx(deepspeed[3])
    assert fsdp[:2] == pytest.approx(fsdp[2:])


def test_partitioned_checkpoints_on_the_host_are_waited_for() -> None:
    # 32 layers of 2,048 tokens x 4,096 x 2 bytes, split over 4 ranks, out and back
    model = catalogue.model("llama-2-7b")
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    training = TrainingSpec(seq_len=2048, global_batch=16)
    table = PlanTable.from_columns(
        2, tp=4, dp=2, recompute=2, cpu_checkpointing=True, partition_activations=[False, True]
    )
    beside, waited = step_time(model, cluster, training, table).parts["offload"]
    each = 2 * 32 * 2048 * 4096 * 2 / 4
    rate = Coefficients.default().host.pageable_gb_per_s * 1e9
    assert waited == pytest.approx(each / rate)
    assert beside < waited


def test_a_compiled_checkpoint_repeats_no_product_whose_result_nothing_keeps() -> None:
    model = catalogue.model("gpt2")
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    training = TrainingSpec(seq_len=1024, global_batch=8)
    table = PlanTable.from_columns(
        4, software=3, micro_batch=8, recompute=[0, 2, 0, 2], compile=[False, False, True, True]
    )
    parts = step_time(model, cluster, training, table).parts
    # of 12 h^2 multiplications a token and layer, the last product has four
    whole = parts["recompute"][1]
    assert parts["recompute"][3] < whole * (1 - 0.15)
    assert parts["recompute"][0] == parts["recompute"][2] == 0


def test_tensors_gathered_one_by_one_each_wait_for_a_ring_of_all_replicas() -> None:
    model = catalogue.model("llama-2-7b")
    cluster = catalogue.cluster("dgx-h100", 64)
    training = TrainingSpec(seq_len=4096, global_batch=512)
    table = PlanTable.from_columns(1, software=3, dp=512, zero_stage=1, overlap_comm=False)
    raw = Coefficients.default().model_dump()
    seconds = []
    for tensors in (0.0, 6.0):
        raw["software"]["megatron"]["zero_pieces_per_layer"] = tensors
        known = Coefficients.model_validate(raw)
        seconds.append(step_time(model, cluster, training, table, known).parts["dp_comm"][0])
    ring = Ring.of(Topology.of(cluster, known), np.array([512]), np.array([1]))
    # 32 layers of six tensors against 7 billion parameters in buckets of 512 million
    pieces, buckets = 32 * 6, 6.74e9 / 512e6
    extra = 2 * (pieces - buckets) * ring.start[0]
    assert seconds[1] - seconds[0] == pytest.approx(extra, rel=0.02)
