"""Tiny random checkpoints of many families, created by transformers' own classes.

Four layers, a residual stream of 128, 512 tokens, windows and chunks of 64 tokens if there are any,
fp32.
"""

from pathlib import Path
from typing import Any

WINDOW = 64
CONTEXT = 1024
VOCAB = 512
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": 511,
    "pad_token_id": None,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {}),
    "phi3": (
        "Phi3",
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.75}},
    ),
    "olmo2": ("Olmo2", {}),
    "granite": (
        "Granite",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 4.0,
            "residual_multiplier": 0.6,
            "logits_scaling": 3.0,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "glm4": ("Glm4", {"attention_bias": True}),
    "smollm3": ("SmolLM3", {}),
    "qwen3-moe": ("Qwen3Moe", _EXPERTS),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": None}),
    "glm4-moe": (
        "Glm4Moe",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "mistral-covered": ("Mistral", {"sliding_window": CONTEXT}),
    "gemma": ("Gemma", {}),
    "gemma2": (
        "Gemma2",
        # vLLM has no other output layer for it.
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "Gemma3",
        {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 32,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
    ),
    "gpt-oss": (
        "GptOss",
        {"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "llama4": (
        "Llama4",
        {
            "attention_chunk_size": WINDOW,
            "num_local_experts": 4,
            "interleave_moe_layer_step": 1,
            "intermediate_size_mlp": 256,
        },
    ),
    "qwen3-next": (
        "Qwen3Next",
        _EXPERTS
        | {
            "shared_expert_intermediate_size": 64,
            # vLLM has no others on CPU. A block is then of about a thousand tokens.
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "max_position_embeddings": 4096,
        },
    ),
    "deepseek-v3": (
        "DeepseekV3",
        {
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "moe_intermediate_size": 64,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
    ),
}
"""Prefix of transformers' class names, and fields of the configuration."""
VLLM_FAMILIES = (
    "llama",
    "qwen3-moe",
    "mixtral",
    "glm4-moe",
    "mistral",
    "gemma3",
    "gpt-oss",
    "llama4",
)
"""Families whose tokens with the vLLM engine are compared with those of vLLM alone: Llama in
tests/e2e/vllm, the others in tests/integration/worker/vllm.
"""
VLLM_STATE_FAMILIES = ("qwen3-next",)
"""The same in bfloat16, within rounding."""


def make_family(name: str, seed: int = 0, **changes: Any) -> Any:
    """Return transformers' model of a family, with random weights in float32.

    `changes` are fields of its configuration.
    """
    # They take seconds to import, and the table alone needs neither.
    import torch
    import transformers

    prefix, fields = FAMILIES[name]
    text = "Text" if prefix in ("Gemma3", "Llama4") else ""
    config_type = getattr(transformers, f"{prefix}{text}Config")
    config = config_type(**(_SHAPE | fields | changes))
    torch.manual_seed(seed)
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).float()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(".A_log"):
            # States that forget slowly: as initialized, nothing is left after some dozen tokens,
            # and no output would tell a wrong state.
            parameter.data.fill_(-6.0)
    return model


def write_family(path: Path, name: str, seed: int = 0) -> Path:
    """Write a checkpoint of a family without a tokenizer; takes a second.

    Returns:
        The path.
    """
    make_family(name, seed).save_pretrained(path)
    return path
