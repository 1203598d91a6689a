"""Large published runs whose plan was chosen so that they fit: model, cluster, plan, citation.

What a source does not print is what its software does: Megatron-LM's interleaving, recomputation
and sequence parallelism as its recipe of the time has them.
"""

from dataclasses import dataclass

from cost_model.catalogue import cluster, model
from cost_model.plans import Plan, PlanTable, Recompute, Software
from cost_model.predict import predict
from cost_model.prediction import Prediction
from cost_model.specs import ModelSpec, TrainingSpec
from cost_model.specs.geometry import explicit

FULL = Recompute.FULL
DEEPSPEED_3D, MEGATRON, FSDP = Software.MEGATRON_DEEPSPEED, Software.MEGATRON, Software.FSDP


@dataclass(frozen=True)
class Run:
    """One run that was published."""

    name: str
    citation: str
    model: ModelSpec
    nodes: str
    """Preset of the cluster."""
    training: TrainingSpec
    plan: Plan
    seconds: float | None = None
    """Of one step, where it is printed."""

    def prediction(self) -> Prediction:
        """What the cost model says of it."""
        table = PlanTable.from_plans([self.plan])
        return predict(self.model, cluster(self.nodes, self.plan.nodes), self.training, table)


def _training(seq: int, batch: int, **more: object) -> TrainingSpec:
    return TrainingSpec.model_validate(
        {"seq_len": seq, "global_batch": batch, "fused_norm": True} | more
    )


def _nemotron(layers: int, hidden: int, heads: int) -> ModelSpec:
    return explicit(
        name="Nemotron-4",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=8,
        vocab=256_000,
        gated=False,
        norm="layernorm",
        position="rotary",
        bias=False,
        tied=False,
    )


OLD = {"attention": "fused_softmax"}
GLM = explicit(
    name="GLM-130B",
    hidden=12288,
    layers=70,
    heads=96,
    intermediate=32768,
    vocab=150_528,
    norm="layernorm",
    bias=True,
)
TURING = explicit(name="MT-NLG", hidden=20480, layers=105, heads=128, vocab=50257, gated=False)

RUNS: tuple[Run, ...] = (
    Run(
        "BLOOM-176B on 384 A100",
        "BigScience 2022, arXiv 2211.05100, section 3.2",
        model("bloom-176b"),
        "dgx-a100-80g",
        _training(2048, 2048, fp32_grad_accum=True, **OLD),
        Plan(
            software=DEEPSPEED_3D,
            nodes=48,
            tp=4,
            pp=12,
            dp=8,
            zero_stage=1,
            micro_batch=2,
            grad_accum=128,
            recompute=FULL,
        ),
        seconds=105,
    ),
    Run(
        "GPT-NeoX-20B on 96 A100 of 40 GB",
        "Black et al. 2022, arXiv 2204.06745, section 3",
        model("gpt-neox-20b"),
        "dgx-a100-40g",
        _training(2048, 1536, precision="fp16", **OLD),
        Plan(
            software=DEEPSPEED_3D,
            nodes=12,
            tp=2,
            pp=4,
            dp=12,
            zero_stage=1,
            micro_batch=4,
            grad_accum=32,
            recompute=FULL,
        ),
    ),
    Run(
        "GLM-130B on 768 A100 of 40 GB",
        "Zeng et al. 2022, arXiv 2210.02414, section 2.3",
        GLM,
        "dgx-a100-40g",
        _training(2048, 4224, precision="fp16", **OLD),
        Plan(
            software=DEEPSPEED_3D,
            nodes=96,
            tp=4,
            pp=8,
            first_stage_layers=8,
            last_stage_layers=8,
            dp=24,
            zero_stage=1,
            grad_accum=176,
            recompute=FULL,
        ),
    ),
    *(
        Run(
            f"MT-NLG 530B on {35 * dp} nodes",
            "Smith et al. 2022, arXiv 2201.11990, section 2.3",
            TURING,
            "dgx-a100-80g",
            _training(2048, 1920, **OLD),
            Plan(
                software=DEEPSPEED_3D,
                nodes=35 * dp,
                tp=8,
                pp=35,
                dp=dp,
                zero_stage=1,
                grad_accum=1920 // dp,
                recompute=FULL,
            ),
            seconds=seconds,
        )
        for dp, seconds in ((8, 60.1), (10, 50.2), (12, 44.4))
    ),
    Run(
        "OPT-175B on 992 A100",
        "Zhang et al. 2022, arXiv 2205.01068, section 2.4",
        model("opt-175b"),
        "dgx-a100-80g",
        _training(2048, 992, precision="fp16", **OLD),
        Plan(software=FSDP, nodes=124, tp=8, dp=124, zero_stage=3, micro_batch=8, recompute=FULL),
    ),
    Run(
        "Falcon-180B on 4,096 A100 of 40 GB",
        "Almazrouei et al. 2023, arXiv 2311.16867, section 5",
        model("falcon-180b"),
        "dgx-a100-40g",
        _training(2048, 2048, attention="flash1"),
        Plan(
            software=MEGATRON,
            nodes=512,
            tp=8,
            sequence_parallel=True,
            pp=8,
            dp=64,
            zero_stage=1,
            grad_accum=32,
        ),
    ),
    Run(
        "Falcon-40B on 384 A100 of 40 GB",
        "its model card: TP 8, PP 4, DP 12 with ZeRO, batch 1,152",
        model("falcon-40b"),
        "dgx-a100-40g",
        _training(2048, 1152, attention="flash1"),
        Plan(software=MEGATRON, nodes=48, tp=8, pp=4, dp=12, zero_stage=1, grad_accum=96),
    ),
    *(
        Run(
            f"Nemotron-4 340B on {96 * dp} H100",
            "NVIDIA 2024, arXiv 2406.11704, table 2",
            _nemotron(96, 18432, 96),
            "dgx-h100",
            _training(4096, batch),
            Plan(
                software=MEGATRON,
                nodes=12 * dp,
                tp=8,
                sequence_parallel=True,
                tp_overlap=True,
                pp=12,
                vpp=8,
                dp=dp,
                zero_stage=1,
                grad_accum=batch // dp,
            ),
            seconds=seconds,
        )
        for dp, batch, seconds in ((16, 768, 10.3), (32, 1536, 10.3), (64, 2304, 8.0))
    ),
    *(
        Run(
            f"Nemotron-4 15B on {8 * dp} H100",
            "Parmar et al. 2024, arXiv 2402.16819, table 2",
            _nemotron(32, 6144, 48),
            "dgx-h100",
            _training(4096, 4 * dp),
            Plan(
                software=MEGATRON,
                nodes=dp,
                tp=8,
                sequence_parallel=True,
                tp_overlap=True,
                dp=dp,
                zero_stage=1,
                micro_batch=4,
            ),
            seconds=seconds,
        )
        for dp, seconds in ((96, 0.57), (192, 0.58), (288, 0.64))
    ),
    *(
        Run(
            f"Llama 3 405B on {128 * dp:,} H100, {tokens:,} tokens",
            "Llama Team 2024, arXiv 2407.21783, table 4 and section 3.3",
            model("llama-3.1-405b"),
            "dgx-h100",
            _training(tokens, 2**24 // tokens, stack="llama"),
            Plan(
                software=FSDP,
                nodes=16 * dp,
                tp=8,
                sequence_parallel=True,
                pp=16,
                vpp=8,
                first_stage_layers=7,
                last_stage_layers=7,
                cp=cp,
                cp_all_gather=cp > 1,
                dp=dp // cp,
                zero_stage=2,
                grad_accum=2**24 // tokens * cp // dp,
            ),
        )
        for dp, cp, tokens in ((64, 1, 8192), (128, 1, 8192), (128, 16, 131_072))
    ),
    Run(
        "DeepSeek-V3 on 2,048 H800, all of it recomputed",
        "DeepSeek-AI 2024, arXiv 2412.19437, section 3.2: it repeats norms, projections and SwiGLU",
        model("deepseek-v3"),
        "h800-sxm",
        _training(4096, 15360),
        Plan(
            software=MEGATRON,
            nodes=256,
            pp=16,
            dp=128,
            ep=64,
            zero_stage=1,
            grad_accum=120,
            recompute=FULL,
        ),
    ),
)
