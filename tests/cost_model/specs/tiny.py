"""Small configs of every supported architecture, and what may vary in them.

Sizes differ from one another, so that no two terms of a count can stand in for each other.
"""

from collections.abc import Mapping
from typing import Any

_LLAMA = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEAD_DIM = _LLAMA | {"head_dim": 12}
_GPT2 = {
    "vocab_size": 97,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BERT = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
    "type_vocab_size": 3,
    "pad_token_id": 1,
}
_T5 = {
    "vocab_size": 97,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 80,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 6,
    "relative_attention_num_buckets": 8,
}
_BART = {
    "vocab_size": 97,
    "d_model": 48,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_ffn_dim": 80,
    "decoder_ffn_dim": 72,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
_LATENT = {
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "num_key_value_heads": 6,
}
_ROUTED = {
    "moe_intermediate_size": 28,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
_QWEN_MOE = {
    "moe_intermediate_size": 28,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_LOCAL_MOE = {"num_local_experts": 5, "num_experts_per_tok": 2}
_TYPES = [["sliding_attention", "full_attention"] * 2, ["full_attention"] * 4, None]
_FLAG = [True, False]
_WINDOW = [None, 16]
_KV = [1, 2, 6]

TINY: Mapping[str, tuple[Mapping[str, Any], Mapping[str, list[Any]]]] = {
    "llama": (_LLAMA, {"attention_bias": _FLAG, "mlp_bias": _FLAG, "head_dim": [8, 12, None]}),
    "exaone": (_LLAMA, {"attention_bias": _FLAG}),
    "internlm3": (_LLAMA | {"head_dim": 8, "qkv_bias": True, "bias": True}, {}),
    "iquestcoder": (_HEAD_DIM, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "granite_swa": (
        _LLAMA,
        {"attention_bias": _FLAG, "mlp_bias": _FLAG, "layer_types": _TYPES},
    ),
    "granite": (_LLAMA, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "smollm3": (_LLAMA, {"attention_bias": _FLAG, "mlp_bias": _FLAG, "use_sliding_window": _FLAG}),
    "helium": (_LLAMA | {"head_dim": 8}, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "seed_oss": (_HEAD_DIM, {"attention_bias": _FLAG, "attention_out_bias": _FLAG}),
    "cwm": (_HEAD_DIM, {"mlp_bias": _FLAG, "layer_types": _TYPES}),
    "arcee": (_LLAMA, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "hunyuan_v1_dense": (_HEAD_DIM, {"attention_bias": _FLAG}),
    "ernie4_5": (_HEAD_DIM, {"use_bias": _FLAG}),
    "bitnet": (_LLAMA, {"attention_bias": _FLAG}),
    "apertus": (_LLAMA, {"attention_bias": _FLAG, "hidden_act": ["xielu", "relu2"]}),
    "nanochat": (_LLAMA, {"attention_bias": _FLAG}),
    "mistral": (_LLAMA, {"sliding_window": _WINDOW, "head_dim": [12, None]}),
    "ministral": (_HEAD_DIM, {"sliding_window": _WINDOW, "layer_types": _TYPES}),
    "ministral3": (_HEAD_DIM, {"sliding_window": _WINDOW}),
    "phi3": (_LLAMA, {"sliding_window": _WINDOW, "num_key_value_heads": [*_KV, None]}),
    "qwen2": (_LLAMA, {"use_sliding_window": _FLAG, "max_window_layers": [0, 2]}),
    "qwen3": (_HEAD_DIM, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "glm": (_HEAD_DIM, {"attention_bias": _FLAG}),
    "glm4": (_HEAD_DIM, {"attention_bias": _FLAG}),
    "olmo": (_LLAMA, {"attention_bias": _FLAG, "num_key_value_heads": [*_KV, None]}),
    "olmo2": (_LLAMA, {"attention_bias": _FLAG}),
    "olmo3": (_LLAMA, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "exaone4": (_LLAMA, {"sliding_window": _WINDOW, "layer_types": _TYPES[:2]}),
    "hyperclovax": (_LLAMA, {"use_post_norm": _FLAG, "mlp_bias": _FLAG, "attention_bias": _FLAG}),
    "starcoder2": (_LLAMA, {"use_bias": _FLAG, "sliding_window": _WINDOW}),
    "stablelm": (
        _LLAMA,
        {"use_qkv_bias": _FLAG, "qk_layernorm": _FLAG, "use_parallel_residual": _FLAG},
    ),
    "cohere": (_LLAMA, {"attention_bias": _FLAG, "use_qk_norm": _FLAG}),
    "cohere2": (_LLAMA, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "phi": (_LLAMA, {"qk_layernorm": _FLAG, "num_key_value_heads": [*_KV, None]}),
    "persimmon": (_LLAMA, {"qk_layernorm": _FLAG}),
    "gpt_neox": (_LLAMA, {"attention_bias": _FLAG, "use_parallel_residual": _FLAG}),
    "nemotron": (_HEAD_DIM, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "jais2": (_HEAD_DIM, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "gemma": (_HEAD_DIM, {"attention_bias": _FLAG}),
    "gemma2": (_HEAD_DIM, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "gemma3_text": (_HEAD_DIM, {"attention_bias": _FLAG, "sliding_window": [16]}),
    "gemma3n_text": (
        _LLAMA
        | {
            "head_dim": 12,
            "hidden_size_per_layer_input": 14,
            "vocab_size_per_layer_input": 77,
            "altup_num_inputs": 3,
            "num_kv_shared_layers": 2,
            "laurel_rank": 5,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {
            "attention_bias": _FLAG,
            "num_kv_shared_layers": [0, 2],
            "intermediate_size": [80, [80, 72, 64, 56]],
        },
    ),
    "vaultgemma": (_HEAD_DIM, {"attention_bias": _FLAG}),
    "gemma4_text": (
        _HEAD_DIM
        | {
            "global_head_dim": 20,
            "hidden_size_per_layer_input": 14,
            "vocab_size_per_layer_input": 77,
            "moe_intermediate_size": 28,
            "num_experts": 5,
            "top_k_experts": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {
            "attention_bias": _FLAG,
            "attention_k_eq_v": _FLAG,
            "num_global_key_value_heads": [1, None],
            "hidden_size_per_layer_input": [0, 14],
            "enable_moe_block": _FLAG,
            "num_kv_shared_layers": [0, 2],
            "use_double_wide_mlp": _FLAG,
        },
    ),
    "mixtral": (_LLAMA | _LOCAL_MOE, {"sliding_window": _WINDOW, "head_dim": [12, None]}),
    "qwen3_moe": (
        _HEAD_DIM | _QWEN_MOE,
        {"attention_bias": _FLAG, "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0, 3]]},
    ),
    "qwen2_moe": (
        _LLAMA | _QWEN_MOE | {"shared_expert_intermediate_size": 36},
        {"qkv_bias": _FLAG, "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0, 3], None]},
    ),
    "olmoe": (_LLAMA | {"num_experts": 5, "num_experts_per_tok": 2}, {"attention_bias": _FLAG}),
    "flex_olmo": (_LLAMA | {"num_experts": 5, "num_experts_per_tok": 2}, {"attention_bias": _FLAG}),
    "phimoe": (_LLAMA | _LOCAL_MOE, {"attention_bias": _FLAG, "lm_head_bias": _FLAG}),
    "gpt_oss": (_HEAD_DIM | _LOCAL_MOE, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "minimax_m2": (_HEAD_DIM | _LOCAL_MOE, {"num_key_value_heads": _KV}),
    "granitemoe": (_LLAMA | _LOCAL_MOE, {"attention_bias": _FLAG}),
    "granitemoeshared": (
        _LLAMA | _LOCAL_MOE,
        {"attention_bias": _FLAG, "shared_intermediate_size": [0, 36]},
    ),
    "granitemoehybrid": (
        _LLAMA
        | _LOCAL_MOE
        | {
            "layer_types": ["full_attention"] * 4,
            "shared_intermediate_size": 36,
            "mamba_n_heads": 4,
        },
        {"attention_bias": _FLAG, "num_local_experts": [0, 5]},
    ),
    "glm4_moe": (_HEAD_DIM | _ROUTED, {"attention_bias": _FLAG, "use_qk_norm": _FLAG}),
    "sarvam_moe": (_HEAD_DIM | _ROUTED, {"attention_bias": _FLAG, "use_qk_norm": _FLAG}),
    "hy_v3": (
        _HEAD_DIM | _QWEN_MOE | {"num_shared_experts": 2},
        {
            "attention_bias": _FLAG,
            "mlp_bias": _FLAG,
            "mlp_layer_types": [None, ["dense", "sparse"] * 2],
        },
    ),
    "solar_open": (_HEAD_DIM | _ROUTED, {"attention_bias": _FLAG}),
    "dots1": (_HEAD_DIM | _ROUTED, {"attention_bias": _FLAG, "layer_types": _TYPES}),
    "exaone_moe": (
        _HEAD_DIM
        | _ROUTED
        | {"num_experts": 8, "num_shared_experts": 2, "layer_types": ["full_attention"] * 4},
        {"first_k_dense_replace": [0, 2], "mlp_layer_types": [None, ["dense", "sparse"] * 2]},
    ),
    "mellum": (
        _HEAD_DIM | _QWEN_MOE | {"layer_types": ["full_attention"] * 4},
        {"attention_bias": _FLAG, "mlp_layer_types": [["sparse"] * 4, ["dense", "sparse"] * 2]},
    ),
    "hunyuan_v1_moe": (
        _HEAD_DIM | {"num_experts": 5, "moe_topk": 2},
        {"attention_bias": _FLAG},
    ),
    "ernie4_5_moe": (
        _LLAMA | {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 28},
        {
            "use_bias": _FLAG,
            "moe_layer_interval": [1, 2],
            "moe_layer_start_index": [0, 2],
            "moe_layer_end_index": [-1, 2],
            "moe_num_shared_experts": [0, 2],
        },
    ),
    "afmoe": (
        _HEAD_DIM
        | {
            "moe_intermediate_size": 28,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "num_shared_experts": 2,
        },
        {"attention_bias": _FLAG, "num_dense_layers": [0, 2]},
    ),
    "aria_text": (
        _LLAMA | {"moe_num_experts": 5, "moe_topk": 2, "moe_num_shared_experts": 2},
        {"attention_bias": _FLAG, "mlp_bias": _FLAG},
    ),
    "llama4_text": (
        _HEAD_DIM | _LOCAL_MOE | {"intermediate_size_mlp": 92, "attention_chunk_size": 32},
        {
            "attention_bias": _FLAG,
            "interleave_moe_layer_step": [1, 2],
            "moe_layers": [None, [1], [0, 3]],
        },
    ),
    "dbrx": (
        {
            "d_model": 48,
            "n_heads": 6,
            "n_layers": 3,
            "max_seq_len": 64,
            "vocab_size": 97,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8},
            "ffn_config": {"ffn_hidden_size": 28, "moe_num_experts": 5, "moe_top_k": 2},
        },
        {"attn_config": [{"kv_n_heads": n, "rope_theta": 1e4, "clip_qkv": 8} for n in _KV]},
    ),
    "mimo_v2_flash": (
        _HEAD_DIM | _ROUTED | {"v_head_dim": 10, "num_key_value_heads": 1},
        {"attention_bias": _FLAG, "layer_types": _TYPES},
    ),
    "deepseek_v2": (
        _LLAMA | _LATENT | _ROUTED,
        {"attention_bias": _FLAG, "mlp_bias": [False], "q_lora_rank": [None, 20]},
    ),
    "deepseek_v3": (
        _LLAMA | _LATENT | _ROUTED,
        {"attention_bias": _FLAG, "q_lora_rank": [None, 20], "first_k_dense_replace": [0, 1, 4]},
    ),
    "sarvam_mla": (_LLAMA | _LATENT | _ROUTED, {"q_lora_rank": [None, 20]}),
    "mistral4": (_LLAMA | _LATENT | _ROUTED, {"first_k_dense_replace": [0, 2]}),
    "glm4_moe_lite": (
        _LLAMA | _LATENT | _ROUTED,
        {"attention_bias": _FLAG, "mlp_layer_types": [None, ["dense", "sparse"] * 2]},
    ),
    "minicpm3": (_LLAMA | _LATENT, {"attention_bias": _FLAG, "mlp_bias": _FLAG}),
    "youtu": (_LLAMA | _LATENT, {"attention_bias": _FLAG}),
    "deepseek_v32": (
        _LLAMA | _LATENT | _ROUTED | {"index_n_heads": 4, "index_head_dim": 6},
        {"attention_bias": _FLAG, "mlp_bias": [False], "first_k_dense_replace": [0, 3]},
    ),
    "glm_moe_dsa": (
        _LLAMA | _LATENT | _ROUTED | {"index_n_heads": 4, "index_head_dim": 6},
        {
            "attention_bias": _FLAG,
            "indexer_types": [None, ["full", "shared"] * 2],
            "index_topk_freq": [1, 2],
        },
    ),
    "gpt2": (_GPT2, {"n_inner": [None, 80]}),
    "gpt_bigcode": (_GPT2, {"n_inner": [None, 80], "multi_query": _FLAG}),
    "openai-gpt": (_GPT2, {}),
    "gptj": (_GPT2 | {"rotary_dim": 4}, {"n_inner": [None, 80]}),
    "codegen": (_GPT2 | {"n_head": 8, "rotary_dim": 4}, {"n_inner": [None, 80]}),
    "gpt_neo": (
        _LLAMA | {"num_layers": 4, "num_heads": 6, "attention_types": [[["global", "local"], 2]]},
        {"intermediate_size": [None, 80]},
    ),
    "opt": (
        _LLAMA | {"ffn_dim": 80},
        {
            "word_embed_proj_dim": [48, 20],
            "do_layer_norm_before": _FLAG,
            "_remove_final_layer_norm": _FLAG,
            "enable_bias": _FLAG,
            "layer_norm_elementwise_affine": _FLAG,
        },
    ),
    "bloom": (
        {"vocab_size": 97, "hidden_size": 48, "n_layer": 3, "n_head": 6, "pad_token_id": 3},
        {},
    ),
    "mpt": ({"vocab_size": 97, "d_model": 48, "n_layers": 3, "n_heads": 6}, {}),
    "falcon": (
        _LLAMA,
        {
            "bias": _FLAG,
            "alibi": _FLAG,
            "new_decoder_architecture": _FLAG,
            "multi_query": _FLAG,
            "parallel_attn": _FLAG,
            "num_ln_in_parallel_attn": [None, 1, 2],
            "num_kv_heads": [None, 2],
            "ffn_hidden_size": [None, 80],
        },
    ),
    "xglm": (
        {
            "vocab_size": 97,
            "d_model": 48,
            "ffn_dim": 80,
            "num_layers": 3,
            "attention_heads": 6,
            "max_position_embeddings": 64,
            "decoder_start_token_id": 2,
        },
        {},
    ),
    "biogpt": (_LLAMA | {"pad_token_id": 1}, {}),
    "ctrl": (_GPT2 | {"dff": 80}, {}),
    "bert": (_BERT, {}),
    "ernie": (_BERT, {"use_task_id": _FLAG}),
    "megatron-bert": (_BERT, {}),
    "roberta": (_BERT, {}),
    "xlm-roberta": (_BERT, {}),
    "camembert": (_BERT, {}),
    "electra": (_BERT, {"embedding_size": [48, 20]}),
    "albert": (
        _BERT | {"inner_group_num": 1},
        {"embedding_size": [48, 20], "num_hidden_groups": [1, 3]},
    ),
    "distilbert": (
        {
            "vocab_size": 97,
            "dim": 48,
            "hidden_dim": 80,
            "n_layers": 3,
            "n_heads": 6,
            "max_position_embeddings": 64,
        },
        {},
    ),
    "mpnet": (_BERT | {"relative_attention_num_buckets": 8}, {}),
    "deberta-v2": (
        _BERT,
        {
            "relative_attention": _FLAG,
            "position_biased_input": _FLAG,
            "position_buckets": [-1, 10],
            "max_relative_positions": [-1, 12],
            "share_att_key": _FLAG,
            "norm_rel_ebd": ["none", "layer_norm"],
            "pos_att_type": [None, "p2c|c2p", ["c2p"]],
            "type_vocab_size": [0, 3],
            "conv_kernel_size": [0, 3],
        },
    ),
    "modernbert": (
        _BERT | {"cls_token_id": 3, "sep_token_id": 4, "eos_token_id": 2, "bos_token_id": 5},
        {
            "attention_bias": _FLAG,
            "mlp_bias": _FLAG,
            "norm_bias": _FLAG,
            "decoder_bias": _FLAG,
            "classifier_bias": _FLAG,
        },
    ),
    "t5": (_T5, {"feed_forward_proj": ["relu", "gated-gelu"], "num_decoder_layers": [None, 2]}),
    "mt5": (_T5, {"feed_forward_proj": ["relu", "gated-gelu"], "num_decoder_layers": [None, 2]}),
    "umt5": (_T5, {"feed_forward_proj": ["relu", "gated-gelu"], "num_decoder_layers": [None, 2]}),
    "switch_transformers": (
        _T5 | {"num_layers": 4, "num_experts": 5},
        {
            "router_bias": _FLAG,
            "num_sparse_encoder_layers": [0, 1, 2, 4],
            "num_sparse_decoder_layers": [0, 1, 2],
        },
    ),
    "bart": (_BART, {}),
    "mbart": (_BART, {}),
    "pegasus": (_BART, {}),
    "blenderbot": (_BART, {}),
    "m2m_100": (_BART, {}),
    "marian": (_BART, {}),
    "mllama_text_model": (_LLAMA, {"cross_attention_layers": [[], [1, 3]]}),
}
"""For each model type: the sizes, and the values that its flags may take."""
