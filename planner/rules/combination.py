"""Rules of combination: which parallelisms and software go together."""

from cost_model.plans import Bools, Plan, PlanTable, Recompute, Software
from planner.rules.columns import DEEPSPEED_ENGINE, MEGATRON_LAYERS, is_software
from planner.rules.rule import Rule, World

RECOMPUTES_MODULES = (Software.DEEPSPEED, Software.FSDP, Software.MEGATRON)
"""Software whose models can checkpoint one module of a layer."""


def _at(plan: Plan) -> str:
    return plan.software.name.lower()


def _has_latent(world: World) -> bool:
    return any(a.latent is not None for a in world.attentions)


def _family_legal(world: World, table: PlanTable) -> Bools:
    """Megatron's layers are decoders without latent attention; a pipeline is one chain."""
    chain = world.model.family != "encoder_decoder"
    megatron = world.model.family == "decoder" and not _has_latent(world)
    return ~(
        (is_software(table, Software.MEGATRON_DEEPSPEED) & (not megatron))
        | (is_software(table, Software.DEEPSPEED_PIPELINE) & (not chain))
        | (is_software(table, Software.MEGATRON) & (world.model.family != "decoder"))
    )


def _feed_forward_legal(world: World, table: PlanTable) -> Bools:
    """Experts on other ranks would be sent their tokens again."""
    dense = is_software(table, *RECOMPUTES_MODULES) & (table.ep == 1)
    whole = ~is_software(table, Software.MEGATRON) | (table.recompute_layers < 0)
    kept: Bools = (table.recompute != int(Recompute.MLP)) | (dense & whole)
    return kept


RULES = (
    Rule(
        "pipeline-software",
        "planner",
        "Pipeline stages need a software that has them: DeepSpeed's PipelineModule or Megatron.",
        ("software", "pp"),
        lambda w, t: (
            (t.pp == 1)
            | is_software(t, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED)
            | is_software(t, Software.MEGATRON)
        ),
        lambda w, p: (
            f"pp={p.pp} with {_at(p)}: a pipeline block in the config does nothing there; use "
            "deepspeed_pipeline or megatron_deepspeed"
        ),
        "an unknown top-level key is ignored by DeepSpeed",
    ),
    Rule(
        "pipeline-module-stages",
        "planner",
        "PipelineModule is for two stages and more.",
        ("software", "pp"),
        lambda w, t: ~is_software(t, Software.DEEPSPEED_PIPELINE) | (t.pp > 1),
        lambda w, p: "deepspeed_pipeline with one stage; use deepspeed",
        "one stage is a duplicate of deepspeed",
    ),
    Rule(
        "pipeline-zero",
        "refused",
        "A pipeline goes with ZeRO 0 and 1 only.",
        ("software", "pp", "zero_stage"),
        lambda w, t: (t.pp == 1) | (t.zero_stage <= 1),
        lambda w, p: (
            f"ZeRO {p.zero_stage} with pp={p.pp}: gradients of every micro-batch would be reduced "
            "before the pipe is drained; use ZeRO 0 or 1"
        ),
        "runtime/pipe/engine.py:76",
    ),
    Rule(
        "pipeline-autotp",
        "refused",
        "AutoTP does not go with a pipeline; Megatron's own tensor-parallel layers do.",
        ("software", "tp"),
        lambda w, t: ~is_software(t, Software.DEEPSPEED_PIPELINE) | (t.tp == 1),
        lambda w, p: (
            f"autotp_size {p.tp} in a PipelineModule aborts every rank at the first broadcast; use "
            "megatron_deepspeed for tp x pp"
        ),
        "process abort in the broadcast at initialize",
    ),
    Rule(
        "vpp-software",
        "planner",
        "The interleaved schedule exists in Megatron only; DeepSpeed's pipeline has none.",
        ("software", "vpp"),
        lambda w, t: (t.vpp == 1) | is_software(t, Software.MEGATRON),
        lambda w, p: f"vpp={p.vpp} with {_at(p)}; use vpp=1, or megatron",
        "runtime/pipe/schedule.py has no interleaved schedule",
    ),
    Rule(
        "cp-software",
        "planner",
        "Context parallelism exists in Megatron and FSDP; DeepSpeed has Ulysses instead.",
        ("software", "cp"),
        lambda w, t: (t.cp == 1) | is_software(t, Software.MEGATRON, Software.FSDP),
        lambda w, p: f"cp={p.cp} with {_at(p)}; use sp (Ulysses), or megatron",
        "not in DeepSpeed",
    ),
    Rule(
        "cp-all-gather",
        "planner",
        "Gathering keys and values is a way of context parallelism.",
        ("cp", "cp_all_gather"),
        lambda w, t: ~t.cp_all_gather | (t.cp > 1),
        lambda w, p: "cp_all_gather with cp=1 gathers nothing; use cp > 1",
        "a duplicate of cp=1",
    ),
    Rule(
        "uneven-stages-software",
        "planner",
        "The layers of the first and last stage are told to Megatron or to a PipelineModule of "
        "one's own; Megatron-DeepSpeed cuts evenly.",
        ("software", "first_stage_layers", "last_stage_layers"),
        lambda w, t: (
            (t.first_stage_layers + t.last_stage_layers == 0)
            | is_software(t, Software.MEGATRON, Software.DEEPSPEED_PIPELINE)
        ),
        lambda w, p: (
            f"stages of {p.first_stage_layers} and {p.last_stage_layers} layers with {_at(p)}; use "
            "megatron or deepspeed_pipeline, or even stages"
        ),
        "Megatron-DeepSpeed megatron/model/gpt_model.py (partition_method type:transformer)",
    ),
    Rule(
        "sp-software",
        "planner",
        "Ulysses SP is used with the DeepSpeed engine around a Hugging Face model.",
        ("software", "sp"),
        lambda w, t: (t.sp == 1) | is_software(t, Software.DEEPSPEED),
        lambda w, p: f"sp={p.sp} with {_at(p)}; use deepspeed",
        "runtime/sequence_parallel/ulysses_sp.py",
    ),
    Rule(
        "sp-zero",
        "silent",
        "Ulysses SP goes with ZeRO 3: below it gradients come out SP times too large.",
        ("sp", "zero_stage"),
        lambda w, t: (t.sp == 1) | (t.zero_stage == 3),
        lambda w, p: (
            f"sp={p.sp} with ZeRO {p.zero_stage}: gradients are {p.sp} times the mean, so clipping "
            "cuts too much; use ZeRO 3"
        ),
        "measured: gradient norm 2.628 against 1.314 at sp=2, ZeRO 0 to 2",
    ),
    Rule(
        "sp-autotp",
        "refused",
        "AutoTP and Ulysses SP exclude each other.",
        ("software", "tp", "sp"),
        lambda w, t: (t.tp == 1) | (t.sp == 1) | ~is_software(t, *DEEPSPEED_ENGINE),
        lambda w, p: (
            f"tp={p.tp} and sp={p.sp}: AutoTP demands equal data within a TP group, Ulysses splits "
            "it; set one of them to 1"
        ),
        "runtime/engine.py:989",
    ),
    Rule(
        "sp-encoder-decoder",
        "planner",
        "Ulysses SP is for models with one stack of self-attention.",
        ("sp",),
        lambda w, t: (t.sp == 1) | (w.model.family != "encoder_decoder"),
        lambda w, p: f"sp={p.sp} with the encoder-decoder {w.model.name}; use sp=1",
        "cross-attention over two sharded sequences is not supported by ulysses_sp.py",
    ),
    Rule(
        "sequence-parallel-software",
        "planner",
        "Sharding norms by sequence needs Megatron's layers and a TP above 1.",
        ("software", "tp", "sequence_parallel"),
        lambda w, t: ~t.sequence_parallel | ((t.tp > 1) & is_software(t, *MEGATRON_LAYERS)),
        lambda w, p: (
            f"sequence_parallel with {_at(p)} and tp={p.tp}; it needs tp > 1 and Megatron's layers"
        ),
        "Megatron megatron/training/arguments.py; AutoTP replicates norms",
    ),
    Rule(
        "autotp-moe",
        "refused",
        "AutoTP does not go with a mixture of experts.",
        ("software", "tp"),
        lambda w, t: ~is_software(t, Software.DEEPSPEED) | (t.tp == 1) | (not w.model.is_moe),
        lambda w, p: (
            f"autotp_size {p.tp} with the experts of {w.model.name}: loading fails on the fused "
            "expert weights; use ZeRO 3, or expert parallelism"
        ),
        "runtime/engine.py module load (all-gather of an invalid size)",
    ),
    Rule(
        "moe-zero",
        "refused",
        "DeepSpeed's own experts (ep > 1) go with ZeRO 0 to 2.",
        ("software", "ep", "zero_stage"),
        lambda w, t: (t.ep == 1) | (t.zero_stage <= 2) | ~is_software(t, *DEEPSPEED_ENGINE),
        lambda w, p: (
            f"ep={p.ep} with ZeRO {p.zero_stage}; use ZeRO 1 or 2, or ep=1 with ZeRO 3 and leaf "
            "modules"
        ),
        "runtime/engine.py:2215",
    ),
    Rule(
        "moe-sp",
        "planner",
        "Expert parallelism is not combined with Ulysses SP.",
        ("ep", "sp"),
        lambda w, t: (t.ep == 1) | (t.sp == 1),
        lambda w, p: f"ep={p.ep} with sp={p.sp}; set one of them to 1",
        "untried: ZeRO 3, which SP needs, excludes DeepSpeed's own experts",
    ),
    Rule(
        "moe-megatron-deepspeed",
        "refused",
        "Megatron-DeepSpeed trains experts without a pipeline.",
        ("software", "pp"),
        lambda w, t: (
            ~is_software(t, Software.MEGATRON_DEEPSPEED) | (t.pp == 1) | (not w.model.is_moe)
        ),
        lambda w, p: f"pp={p.pp} with the experts of {w.model.name}; use pp=1",
        "Megatron-DeepSpeed: mixture of experts needs --no-pipeline-parallel",
    ),
    Rule(
        "model-family",
        "planner",
        "Megatron-DeepSpeed has decoders without latent attention, a pipeline has a single chain.",
        ("software",),
        _family_legal,
        lambda w, p: f"{_at(p)} cannot build {w.model.name} ({w.model.family}); use deepspeed",
        "the models that each software has",
    ),
    Rule(
        "lora-software",
        "planner",
        "LoRA is trained with the DeepSpeed engine around a PEFT model, without TP.",
        ("software", "tp"),
        lambda w, t: (
            (w.training.lora is None)
            | ((t.tp == 1) & is_software(t, Software.DEEPSPEED, Software.FSDP))
        ),
        lambda w, p: f"LoRA with {_at(p)} and tp={p.tp}; use deepspeed with tp=1",
        "PEFT's adapters are not known to AutoTP nor to PipelineModule",
    ),
    Rule(
        "qlora-zero",
        "silent",
        "A 4-bit base goes with ZeRO 0 to 2: ZeRO 3 does not shard it.",
        ("zero_stage",),
        lambda w, t: (
            (t.zero_stage <= 2) | (w.training.lora is None or not w.training.lora.quantized_base)
        ),
        lambda w, p: "QLoRA with ZeRO 3: the 4-bit base stays whole on every rank; use ZeRO 1 or 2",
        "bitsandbytes stores packed integers, which zero.Init leaves alone",
    ),
    Rule(
        "lora-ep",
        "planner",
        "LoRA is not combined with expert parallelism.",
        ("ep",),
        lambda w, t: (w.training.lora is None) | (t.ep == 1),
        lambda w, p: f"LoRA with ep={p.ep}; use ep=1",
        "PEFT's adapters are not known to DeepSpeed's expert groups",
    ),
    Rule(
        "selective-recompute",
        "planner",
        "Selective recompute drops attention scores: it needs Megatron's layers and an attention "
        "that keeps them.",
        ("software", "recompute"),
        lambda w, t: (
            (t.recompute != int(Recompute.SELECTIVE))
            | (
                is_software(t, *MEGATRON_LAYERS)
                & (w.training.attention in {"eager", "fused_softmax"})
            )
        ),
        lambda w, p: (
            f"selective recompute with {_at(p)} and {w.training.attention} attention has nothing "
            "to drop; use none or full"
        ),
        "arXiv 2205.05198, section 5",
    ),
    Rule(
        "feed-forward-recompute",
        "planner",
        "Recompute of the feed-forward alone is for models whose code checkpoints a module: "
        "Hugging Face's, FSDP's and Megatron's (there in every layer), without expert parallelism.",
        ("software", "ep", "recompute", "recompute_layers"),
        _feed_forward_legal,
        lambda w, p: (
            f"recompute mlp with {_at(p)}, ep={p.ep} and recompute_layers {p.recompute_layers}; "
            "use full, or deepspeed with ep=1"
        ),
        "torch.utils.checkpoint around a module; Megatron --recompute-modules mlp",
    ),
    Rule(
        "chunked-loss",
        "planner",
        "A chunked loss is for causal models with the Hugging Face head (Liger, or DeepSpeed's "
        "tiled logits).",
        ("software", "tp", "chunked_loss"),
        lambda w, t: (
            ~t.chunked_loss
            | (
                is_software(t, Software.DEEPSPEED, Software.FSDP)
                & (t.tp == 1)
                & (w.model.family == "decoder")
            )
        ),
        lambda w, p: f"chunked_loss with {_at(p)} and tp={p.tp}; use deepspeed with tp=1",
        "runtime/sequence_parallel/ulysses_sp.py TiledFusedLogitsLoss",
    ),
    Rule(
        "compile-software",
        "planner",
        "torch.compile is used without a pipeline and without expert parallelism.",
        ("software", "ep", "compile"),
        lambda w, t: ~t.compile | (is_software(t, Software.DEEPSPEED, Software.FSDP) & (t.ep == 1)),
        lambda w, p: f"compile with {_at(p)} and ep={p.ep}; use deepspeed with ep=1",
        "graph breaks at every stage and at every dispatch",
    ),
    Rule(
        "partitioned-checkpoints",
        "silent",
        "Partitioned activation checkpoints need Megatron-DeepSpeed, TP above 1 and full "
        "recompute; elsewhere the block is inert.",
        ("software", "tp", "recompute", "partition_activations"),
        lambda w, t: (
            ~t.partition_activations
            | (
                is_software(t, Software.MEGATRON_DEEPSPEED)
                & (t.tp > 1)
                & (t.recompute == int(Recompute.FULL))
            )
        ),
        lambda w, p: (
            f"partition_activations with {_at(p)}, tp={p.tp} and recompute "
            f"{p.recompute.name.lower()} does nothing"
        ),
        "runtime/activation_checkpointing/checkpointing.py (needs configure() and its own calls)",
    ),
    Rule(
        "partitioned-checkpoints-sequence",
        "silent",
        "Partitioned activation checkpoints need every TP rank to hold the same activations; with "
        "sequence parallelism each holds its own part of the sequence.",
        ("sequence_parallel", "partition_activations"),
        lambda w, t: ~(t.partition_activations & t.sequence_parallel),
        lambda w, p: (
            "partition_activations with sequence_parallel: the backward pass would put one "
            "activation together from the parts of different ones; use one of the two"
        ),
        "runtime/activation_checkpointing/checkpointing.py:276 (gathers one part from each rank)",
    ),
    Rule(
        "cpu-checkpoints",
        "refused",
        "Checkpoints held in host RAM need partitioned ones.",
        ("partition_activations", "cpu_checkpointing"),
        lambda w, t: ~t.cpu_checkpointing | t.partition_activations,
        lambda w, p: "cpu_checkpointing without partition_activations; set both",
        "runtime/activation_checkpointing/checkpointing.py",
    ),
    Rule(
        "capacity-factor",
        "planner",
        "A capacity factor belongs to DeepSpeed's or Megatron's own experts.",
        ("ep", "capacity_factor"),
        lambda w, t: (t.capacity_factor == 0) | ((t.ep > 1) & w.model.is_moe),
        lambda w, p: (
            f"capacity_factor {p.capacity_factor} with ep={p.ep}; Hugging Face experts drop no "
            "token: use 0"
        ),
        "moe/sharded_moe.py reads it, Hugging Face experts do not",
    ),
)
