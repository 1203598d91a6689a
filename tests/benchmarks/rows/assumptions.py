"""What is assumed where a row does not say, each rule once and with its reason.

A translator never fills a gap in silence: it asks the ledger for the rule by name, and the names
of all rules that a row needed travel with it.
"""

from dataclasses import dataclass, field

RULES: dict[str, str] = {
    # geometry
    "ffn_is_4h": "GPT and BERT feed-forward layers are four hidden sizes wide unless stated",
    "gated_ffn_is_8h_over_3": "LLaMA's gated feed-forward holds as many weights as an ungated 4h",
    "heads_of_128": "large models use heads of 128, small ones (hidden below 2048) of 64",
    "kv_heads_are_heads": "multi-head attention unless grouped queries are stated",
    "geometry_from_name": "the model's published config gives what the row leaves blank",
    "gated_from_name": "LLaMA-like families have gated feed-forward layers and RMSNorm",
    "vocab_of_family": "the tokenizer that the family is published with",
    "tied_by_count": "tied or untied output matrix, whichever meets the printed parameter count",
    "tied_by_family": "GPT and BERT tie the output matrix to the token table, LLaMA does not",
    "learned_positions": "GPT and BERT learn one position vector per token of the sequence",
    # hardware
    "gpu_memory_from_name": "the largest memory sold under that GPU's name",
    "ample_host_ram": "host RAM is in no column, and out of memory means the GPU's; benchmark runs"
    " do not save either",
    "gpu_in_a_common_server": "a GPU without a machine of its own sits in a PCIe server",
    "gpus_per_node_8": "servers of data-centre GPUs have eight",
    "network_of_gpu": "the network its vendor's reference server has",
    # layout
    "no_tensor_parallelism": "a degree that is blank where data parallelism fills the job is 1",
    "dp_fills_the_job": "data parallelism is what tensor, pipeline and context leave",
    "accumulation_fills_the_batch": "accumulation = global batch / (data parallel x micro-batch)",
    "batch_from_micro_batches": "global batch = micro-batch x accumulation x data parallel",
    "one_micro_batch": "accumulation not stated: one micro-batch a step",
    "uneven_micro_batches": "per-rank batch not a multiple of the micro-batch: the last is smaller,"
    " and the measured time is scaled to whole micro-batches",
    "micro_batch_1_in_pipeline": "micro-batch not stated: pipelines are run with micro-batch 1",
    "micro_batch_fills_rank": "micro-batch not stated, no pipeline: the rank's batch if at most 4",
    "interleave_fully": "Megatron-Core's published runs interleave; chunks as small as divide",
    "megatron_examples_recompute": "the example scripts of that release checkpoint every layer",
    "recompute_not_stated": "nothing said of recomputation: none",
    "recomputed_by_hfu": "a hardware utilisation of 4/3 of the model's means full recomputation",
    "op_checkpointing_as_layers": "saving attention and every other matrix product keeps, of a"
    " gated layer, its input, query, value, attention and two products of the feed-forward: about"
    " 33 % of what an eager layer saves and 42 % of what a compiled one does, and repeats about"
    " half of the products: as the rest of the layers recomputed",
    "torchtrain_selective_is_by_operator": "torchtrain's selective checkpointing was by operator:"
    " its runs hold 63 KB a token and layer, which is that, and not every other layer",
    "litgpt_one_device": "LitGPT's config hub trains on one device, whatever the machine has: its"
    " tables print equal memory and time for one and four GPUs",
    "third_party_3d": "other frameworks with tensor and pipeline parallelism hold what Megatron"
    " holds",
    "plain_pytorch_3d": "a 3D-parallel code in plain PyTorch modules holds what DeepSpeed's"
    " pipeline holds: gathered logits, unfused norms, 16-bit gradients",
    "unknown_software": "framework not recognised: judged by its parallelism",
    "zero_of_software": "the sharding that this software uses by default",
    "nemo_distributed_adam": "NeMo of 2023 and later, and before it without model"
    " parallelism, runs its distributed fused Adam",
    "checkpoints_on_host": "Megatron under DeepSpeed ZeRO-3 partitions its activation checkpoints"
    " over the tensor-parallel ranks and parks them in host RAM (--partition-activations"
    " --checkpoint-in-cpu of those scripts)",
    "stages_of_equal_parameters": "AA-Scaling divides the model into stages of equal parameters,"
    " embedding and head counted",
    "stages_of_equal_cost": "nanotron fills stages with equal shares of the work, the output matrix"
    " counted and the embedding not",
    "whole_hand_over": "DeepSpeed's pipeline of 2021 (the V100 and T4 runs), and AA-Scaling's, send"
    " the whole tensor from every tensor-parallel rank",
    "published_runs_overlap_tensor_parallel": "NVIDIA's published runs of 2023 and later overlap"
    " tensor-parallel traffic chunk by chunk (tp_comm_overlap of their recipes)",
    "nemo_lora_on_attention": "NeMo puts adapters on the attention's projections unless told"
    " otherwise",
    "gpipe_recomputes": "GPipe recomputes every micro-batch (arXiv 1811.06965, section 2.3)",
    "bridge_recipes_reduce_16_bits": "Megatron-Bridge's performance recipes set"
    " grad_reduce_in_fp32=False",
    "nemo_16bit_gradients": "NeMo's distributed fused Adam reduces and holds 16-bit gradients",
    "fused_cross_entropy": "llm-foundry's loss is flash-attention's fused cross-entropy, in place"
    " on the 16-bit logits",
    "chunked_cross_entropy": "torchtune's loss works on a chunk of the sequence at a time",
    "torchtitan_compiles_its_loss": "torchtitan compiles its loss with the model since the end of"
    " 2024",
    "litgpt_adapts_q_and_v": "LitGPT adapts queries and values unless told otherwise, with dropout"
    " of 0.05 before the adapters",
    "litgpt_accumulates": "LitGPT's recipes take several micro-batches a step: 8 to 16 sequences",
    "nanotron_prints_rank_0": "nanotron logs the memory of rank 0, the first stage",
    "torchtune_recipes": "torchtune's recipes checkpoint every layer unless told otherwise",
    "no_overlap_before_2023": "Megatron-LM reduced gradients after the backward pass until 2023",
    "zero3_of_2021_waits": "DeepSpeed's ZeRO-3 of 2021 (the V100 runs) gathered parameter by"
    " parameter and waited for each; its coordinator of prefetches came at the end of that year",
    # training
    "precision_bf16": "precision not stated: bf16 on Ampere and later, fp16 before",
    "tf32_in_containers": "fp32 training on Ampere and later multiplies in TF32: the default of"
    " NVIDIA's PyTorch containers",
    "local_attention": "Megatron-Core's local layers use its own attention with stored scores",
    "draco_has_no_deterministic_flash": "Megatron-Core's deterministic tests on the draco cluster"
    " store their scores: twenty tests ran there and elsewhere, and differ by just those",
    "fused_softmax": "no flash attention in Megatron's code: its fused scale-mask-softmax kernel",
    "fp32_stores_scores": "Megatron's code has flash kernels for 16 bits alone: fp32 runs store"
    " their scores",
    "systems_papers_without_dropout": "Sailor's and Mist's runs drop nothing: what they hold leaves"
    " no room for dropped scores",
    "litgpt_shards_what_is_too_large": "a LitGPT peak below what weights, gradients and moments of"
    " a full fine-tuning take says that the run was sharded over the machine's devices",
    "litgpt_unties": "LitGPT has an output matrix of its own where the model's is tied",
    "xla_gathers_once": "Alpa's ZeRO 3 gathers each weight once a step and keeps it: its compiler"
    " repeats no gather in the backward pass",
    "paddle_has_flash_1": "PaddlePaddle has FlashAttention-2 since 2.6",
    "soft_caps_store_scores": "Gemma 2's soft caps of the scores keep LitGPT from flash kernels",
    "flash_by_age": "software of 2023 and later uses flash attention unless it says otherwise",
    "gpt_dropout": "Megatron's and Hugging Face's GPT and BERT train with dropout 0.1",
    "whole_square": "llm-foundry's runs with FlashAttention-2 take as long as the published kernel"
    " over the whole square of scores, on A100 (202 against 203 TFLOP/s) and H100 (335 and 335)",
    "packed_sequences": "of short samples packed into one sequence each attends within itself, as"
    " within a window of its length",
    "fused_kernels": "Megatron fuses norms and bias-dropout-add; compiled graphs fuse them too",
    "lamb_as_adam": "LAMB holds Adam's states",
    "masked_head": "NVIDIA's BERT computes the output matrix at the masked positions only, 15 %",
    # measured values
    "time_from_tokens": "step time = tokens per step / (tokens per second per GPU x GPUs)",
    "time_from_flops": "step time = FLOPs per step by the source's formula / printed rate",
    "litgpt_gigabytes": "LitGPT prints max_memory_allocated / 10^9",
    "memory_is_allocated": "peak memory of unstated kind: what the allocator handed out",
}


class Skip(Exception):  # noqa: N818 - a row that cannot be a question is no error
    """The row cannot be asked of the cost model; the message says why."""


@dataclass
class Ledger:
    """Names of the rules that one row needed, in the order of use."""

    used: list[str] = field(default_factory=list)

    def assume(self, rule: str) -> None:
        """Record a rule; it must be written in RULES."""
        if rule not in RULES:
            raise KeyError(rule)
        if rule not in self.used:
            self.used.append(rule)
