"""Rules of ZeRO, offload and precision."""

from cost_model.plans import Bools, Offload, PlanTable, Software
from planner.rules.columns import DEEPSPEED_ENGINE, is_software
from planner.rules.rule import Rule, World

CPU_OPTIMIZERS = ("adamw", "adagrad", "lion")


def _accumulates_fp32(world: World) -> bool:
    return world.sixteen_bit and bool(world.training.fp32_grad_accum)


def gradient_wire_bytes(world: World, software: Software) -> int:
    """Bytes of a gradient element between replicas, unless told otherwise.

    DeepSpeed reduces in the training precision (runtime/engine.py communication_data_type),
    Megatron in that of its main gradients, FSDP as asked.
    """
    training = world.training
    if training.precision == "fp32":
        return 4
    if software in {Software.MEGATRON, Software.FSDP}:
        by_default = software == Software.MEGATRON and training.precision == "bf16"
        wide = by_default if training.fp32_grad_accum is None else training.fp32_grad_accum
        return 4 if wide else 2
    return 2


def _narrow_wire_legal(world: World, table: PlanTable) -> Bools:
    wide = [s for s in Software if gradient_wire_bytes(world, s) > 2]
    several = table.zero_group > 1
    return ~table.comm_16bit | (several & is_software(table, *wide) if wide else False)


def _hpz_legal(world: World, table: PlanTable) -> Bools:
    shards = (table.zero_stage == 3) & (table.tp == 1) & (table.zero_group % table.hpz == 0)
    kept: Bools = (table.hpz == 1) | shards
    return kept


RULES = (
    Rule(
        "zero-software",
        "planner",
        "Megatron has ZeRO 0 and 1 (its distributed optimizer), FSDP has 2 and 3.",
        ("software", "zero_stage"),
        lambda w, t: (
            (~is_software(t, Software.MEGATRON) | (t.zero_stage <= 1))
            & (~is_software(t, Software.FSDP) | (t.zero_stage >= 2))
        ),
        lambda w, p: f"ZeRO {p.zero_stage} with {p.software.name.lower()}",
        "what each software shards",
    ),
    Rule(
        "zero-megatron-deepspeed",
        "planner",
        "Megatron-DeepSpeed with its own TP layers is planned with ZeRO 0 and 1, as its pipeline.",
        ("software", "zero_stage"),
        lambda w, t: ~is_software(t, Software.MEGATRON_DEEPSPEED) | (t.zero_stage <= 1),
        lambda w, p: f"ZeRO {p.zero_stage} with megatron_deepspeed; use 0 or 1, or deepspeed",
        "runtime/pipe/engine.py:76 for every model built as a pipeline",
    ),
    Rule(
        "offload-software",
        "planner",
        "Offload is planned with the DeepSpeed engine.",
        ("software", "offload_optimizer", "offload_param"),
        lambda w, t: (
            ((t.offload_optimizer == 0) & (t.offload_param == 0))
            | ~is_software(t, Software.MEGATRON, Software.FSDP)
        ),
        lambda w, p: f"offload with {p.software.name.lower()}; use deepspeed",
        "not modelled elsewhere",
    ),
    Rule(
        "offload-optimizer-stage",
        "silent",
        "Optimizer offload needs ZeRO 1 or more.",
        ("zero_stage", "offload_optimizer"),
        lambda w, t: (t.offload_optimizer == 0) | (t.zero_stage >= 1),
        lambda w, p: (
            f"offload_optimizer with ZeRO {p.zero_stage} is accepted and does nothing; use ZeRO 1 "
            "or more"
        ),
        "ignored at stage 0",
    ),
    Rule(
        "offload-param-stage",
        "silent",
        "Parameter offload needs ZeRO 3.",
        ("zero_stage", "offload_param"),
        lambda w, t: (t.offload_param == 0) | (t.zero_stage == 3),
        lambda w, p: (
            f"offload_param with ZeRO {p.zero_stage} is accepted and does nothing; use ZeRO 3"
        ),
        "ignored below stage 3",
    ),
    Rule(
        "nvme-stage",
        "silent",
        "NVMe offload needs ZeRO 3: below it, it runs as CPU offload.",
        ("zero_stage", "offload_optimizer", "offload_param"),
        lambda w, t: (
            (t.zero_stage == 3)
            | ((t.offload_optimizer != int(Offload.NVME)) & (t.offload_param != int(Offload.NVME)))
        ),
        lambda w, p: f"NVMe offload with ZeRO {p.zero_stage} runs as CPU offload; use ZeRO 3",
        "runtime/zero/stage_1_and_2.py knows CPU only",
    ),
    Rule(
        "nvme-present",
        "planner",
        "NVMe offload needs NVMe in the nodes.",
        ("offload_optimizer", "offload_param"),
        lambda w, t: (
            (w.cluster.node.nvme is not None)
            | ((t.offload_optimizer != int(Offload.NVME)) & (t.offload_param != int(Offload.NVME)))
        ),
        lambda w, p: f"NVMe offload, and the nodes of {w.cluster.name} have no NVMe; use CPU",
        "the cluster",
    ),
    Rule(
        "offload-ratio",
        "refused",
        "A partial offload of the optimizer needs ZeRO 3, CPU offload and Adam.",
        ("zero_stage", "offload_optimizer", "offload_ratio"),
        lambda w, t: (
            (t.offload_ratio == 1)
            | (
                (t.zero_stage == 3)
                & (t.offload_optimizer == int(Offload.CPU))
                & (w.training.optimizer == "adamw")
            )
        ),
        lambda w, p: (
            f"offload_ratio {p.offload_ratio} of {w.training.optimizer} with ZeRO {p.zero_stage} "
            f"and optimizer offload {p.offload_optimizer.name.lower()}; use 1.0, or ZeRO 3 with "
            "CPU offload and adamw"
        ),
        "runtime/zero/config.py (ratio is for stage 3 only), runtime/zero/stage3.py (CPUAdam only)",
    ),
    Rule(
        "offload-optimizer-kind",
        "refused",
        "Offloaded states are updated by DeepSpeed's CPU optimizers: Adam, Adagrad and Lion.",
        ("offload_optimizer",),
        lambda w, t: (t.offload_optimizer == 0) | (w.training.optimizer in CPU_OPTIMIZERS),
        lambda w, p: (
            f"{w.training.optimizer} has no CPU version; use one of {', '.join(CPU_OPTIMIZERS)}, "
            "or no optimizer offload"
        ),
        "runtime/engine.py zero_force_ds_cpu_optimizer",
    ),
    Rule(
        "hpz",
        "refused",
        "The hpZ partition needs ZeRO 3 without TP and divides the ZeRO group.",
        ("zero_stage", "tp", "dp", "sp", "cp", "hpz"),
        _hpz_legal,
        lambda w, p: (
            f"hpz={p.hpz} with ZeRO {p.zero_stage}, tp={p.tp} and {p.dp * p.sp * p.cp} ranks in "
            "the ZeRO group; it needs ZeRO 3, tp=1 and a divisor of the group"
        ),
        "utils/groups.py:71 (size); below stage 3 it is ignored; with TP its groups mix shards",
    ),
    Rule(
        "hpz-smaller",
        "planner",
        "An hpZ partition as large as the ZeRO group keeps a second copy for nothing.",
        ("dp", "sp", "cp", "hpz"),
        lambda w, t: (t.hpz == 1) | (t.hpz < t.zero_group),
        lambda w, p: f"hpz={p.hpz} with {p.dp * p.sp * p.cp} ranks in the ZeRO group; use hpz=1",
        "no traffic is saved",
    ),
    Rule(
        "quantized-weights-stage",
        "silent",
        "Quantised weights (ZeRO++) need ZeRO 3.",
        ("software", "zero_stage", "quantized_weights"),
        lambda w, t: (
            ~t.quantized_weights | ((t.zero_stage == 3) & is_software(t, Software.DEEPSPEED))
        ),
        lambda w, p: (
            f"quantized_weights with ZeRO {p.zero_stage} is accepted and does nothing; use ZeRO 3"
        ),
        "ignored below stage 3",
    ),
    Rule(
        "quantized-gradients",
        "silent",
        "Quantised gradients (ZeRO++) need ZeRO 3 and more than one node.",
        ("software", "nodes", "zero_stage", "quantized_gradients"),
        lambda w, t: (
            ~t.quantized_gradients
            | ((t.zero_stage == 3) & (t.nodes > 1) & is_software(t, Software.DEEPSPEED))
        ),
        lambda w, p: (
            f"quantized_gradients with ZeRO {p.zero_stage} on {p.nodes} nodes is accepted and does "
            "nothing; it needs ZeRO 3 on two nodes or more"
        ),
        "runtime/zero/stage3.py:1928",
    ),
    Rule(
        "quantized-offload",
        "planner",
        "Quantised weights are not combined with parameter offload.",
        ("quantized_weights", "offload_param"),
        lambda w, t: ~t.quantized_weights | (t.offload_param == 0),
        lambda w, p: "quantized_weights with offload_param; use one of them",
        "untried",
    ),
    Rule(
        "gradient-traffic",
        "planner",
        "16-bit gradient traffic is for gradients that else cross in fp32, between replicas.",
        ("software", "dp", "sp", "cp", "comm_16bit"),
        _narrow_wire_legal,
        lambda w, p: (
            f"comm_16bit with {p.software.name.lower()} in {w.training.precision} over "
            f"{p.dp * p.sp * p.cp} replicas changes nothing; leave it out"
        ),
        "runtime/engine.py:1719 communication_data_type is the training precision already",
    ),
    Rule(
        "master-weights",
        "refused",
        "16-bit optimizer states without an fp32 master need ZeRO 1 or more.",
        ("software", "zero_stage"),
        lambda w, t: (
            (w.training.fp32_master or not w.sixteen_bit)
            | (t.zero_stage >= 1)
            | ~is_software(t, *DEEPSPEED_ENGINE)
        ),
        lambda w, p: (
            f"{w.training.precision} without an fp32 master and ZeRO {p.zero_stage}; use ZeRO 1 or "
            "more"
        ),
        "runtime/config.py:707",
    ),
    Rule(
        "pipeline-clipping",
        "silent",
        "A pipeline in fp32 needs ZeRO 1: at ZeRO 0 each stage clips by its own gradient norm.",
        ("software", "pp", "zero_stage"),
        lambda w, t: (
            (t.pp == 1) | (t.zero_stage >= 1) | w.sixteen_bit | ~is_software(t, *DEEPSPEED_ENGINE)
        ),
        lambda w, p: (
            f"pp={p.pp} with ZeRO 0 in fp32: every stage clips by the norm of its own gradients; "
            "use ZeRO 1"
        ),
        "measured: norms 5.050, 5.019 and 4.990 for pp 1, 2 and 4 of one model",
    ),
    Rule(
        "fp32-accumulation",
        "refused",
        "Gradients accumulated in fp32 beside 16-bit weights need ZeRO 1 or more.",
        ("software", "zero_stage"),
        lambda w, t: (
            (not _accumulates_fp32(w))
            | (t.zero_stage >= 1)
            | is_software(t, Software.MEGATRON, Software.FSDP)
        ),
        lambda w, p: (
            f"{w.training.precision} with fp32 gradient accumulation and ZeRO {p.zero_stage}; use "
            "ZeRO 1 or more"
        ),
        "runtime/engine.py:2323",
    ),
)
