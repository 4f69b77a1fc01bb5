"""Tiny configurations of many architectures, for tests of what has to hold for any of them."""

from transformers import AutoConfig

import tiny

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "intermediate_size": 32, "ffn_dim": 32, "n_embd": 16, "n_layer": 2, "n_head": 2,
    "n_positions": 96, "n_ctx": 96, "d_model": 16, "num_layers": 2, "attention_heads": 2,
    "num_heads": 2, "attention_types": [[["global", "local"], 1]], "max_seq_len": 96,
    "max_position_embeddings": 96, "vocab_size": tiny.VOCABULARY + tiny.EXTRA,
    "pad_token_id": tiny.PAD, "bos_token_id": tiny.BEGIN, "eos_token_id": tiny.STOP,
}  # fmt: skip
EXPERTS = {
    "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "decoder_sparse_step": 1,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "head_dim": 4, "num_key_value_heads": 2,
}  # fmt: skip
WINDOW = {"sliding_window": 8}
PER_LAYER = {"vocab_size_per_layer_input": 48, "hidden_size_per_layer_input": 4}
ROPE = {"rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 48}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, **ROPE, **more}}


KINDS = {
    "llama": {},
    "llama-linear": rope("linear"),
    "llama-yarn": rope("yarn"),
    "llama-llama3": rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0),
    "mistral": WINDOW,
    "ministral": WINDOW,
    "qwen2": {},
    "qwen2-window": {**WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "gemma": {},
    "gemma2": WINDOW,
    "gemma3_text": WINDOW,
    "gemma4_text": {**WINDOW, **PER_LAYER, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma3n_text": {
        **WINDOW, **PER_LAYER, "num_kv_shared_layers": 0, "laurel_rank": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.0, 0.0],
    },
    "phi": {},
    "phi3": WINDOW,
    "gpt2": {},
    "gpt_neox": {},
    "gpt_neo": {"window_size": 8},
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 2, "num_attention_heads": 4},
    "opt": {"word_embed_proj_dim": 16},
    "bloom": {},
    "falcon": {"alibi": False, "new_decoder_architecture": False},
    "falcon-alibi": {"alibi": True, "new_decoder_architecture": False},
    "falcon-new": {"new_decoder_architecture": True, "num_kv_heads": 1},
    "mpt": {},
    "stablelm": {},
    "cohere": {},
    "cohere2": WINDOW,
    "olmo": {},
    "olmo2": {},
    "olmo3": WINDOW,
    "olmoe": EXPERTS,
    "granite": {},
    "granitemoe": EXPERTS,
    "mixtral": EXPERTS,
    "smollm3": {},
    "starcoder2": WINDOW,
    "nemotron": {},
    "glm": {},
    "glm4": {},
    "exaone4": WINDOW,
    "gpt_oss": {**EXPERTS, **WINDOW},
    "deepseek_v3": {**EXPERTS, **LATENT},
    "xglm": {},
    "biogpt": {},
    "gpt_bigcode": {},
    "ernie4_5": {},
    "hunyuan_v1_dense": {},
    "seed_oss": {},
    "arcee": {},
    "helium": {},
    "diffllama": {"num_key_value_heads": 2},
    "persimmon": {"num_key_value_heads": 2},
    "apertus": {},
    "dots1": {**EXPERTS, "n_shared_experts": 1},
}  # fmt: skip
"""Options of each, beside SIZES; a name may have a manner behind its kind."""
UNSHARED = {
    "llama-dynamic": rope("dynamic"),
    "phi3-longrope": rope("longrope", long_factor=[2.0] * 4, short_factor=[1.0] * 4),
    "qwen3_5_text": {},
    "roberta": {"is_decoder": True},
    "bart": {
        "is_decoder": True, "is_encoder_decoder": False, "decoder_layers": 2,
        "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "forced_eos_token_id": None,
    },
    "falcon_h1": {
        "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1,
        "mamba_d_state": 8,
    },
}  # fmt: skip
"""Options of those whose prompts cannot be read once."""


def configuration(name):
    kind, _, _ = name.partition("-")
    known = AutoConfig.for_model(kind)
    names = {*known.to_dict(), *known.attribute_map}
    sizes = {key: value for key, value in SIZES.items() if key in names}
    return AutoConfig.for_model(kind, **sizes | (KINDS | UNSHARED)[name])
