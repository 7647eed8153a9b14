"""Writes a model as a checkpoint directory in Hugging Face layout."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from baton.engine.testing.random_tokenizer import end_tokens
from train import tokenizer as text_tokenizer
from train.model import Llama

SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.98}
"""What requests that do not say how to sample get: at temperature 1 so small a model puts parts of
several answers together, and with less of them to choose from it repeats numbers without an end."""


def export(
    model: Llama, tokenizer: Tokenizer, directory: Path, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Write config.json, generation_config.json, model.safetensors and the tokenizer's files."""
    text_tokenizer.save(tokenizer, directory, model.shape.context)
    ends = end_tokens(tokenizer)
    shape = model.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        # Readers older than rope_parameters take the base from here.
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": str(dtype).removeprefix("torch."),
        "bos_token_id": None,
        "eos_token_id": ends[0],
        "pad_token_id": ends[1],
    }
    _write(directory / "config.json", config)
    _write(
        directory / "generation_config.json",
        {"eos_token_id": ends, "pad_token_id": ends[1], **SAMPLING},
    )
    tensors = {
        f"model.{name}": value.detach().to("cpu", dtype).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def load(model: Llama, directory: Path) -> None:
    """Take the weights of a checkpoint that `export` wrote; shapes must be the model's."""
    tensors = load_file(directory / "model.safetensors")
    model.load_state_dict({name.removeprefix("model."): value for name, value in tensors.items()})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
