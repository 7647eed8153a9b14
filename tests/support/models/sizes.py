"""Checkpoints of tens of gigabytes, of which only headers are on the disk."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

LLAMA_8B: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
"""The shape of Llama 3.1 8B."""
_WIDTHS = {"BF16": 2, "F32": 4, "U8": 1}


def write_sizes(
    directory: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    dtype: str = "BF16",
) -> Path:
    """Write a checkpoint whose tensors are a hole in its file; return the directory.

    Args:
        directory: is created.
        config: its config.json.
        tensors: shapes by name; None: those of a Llama of this shape.
        dtype: of all of them: BF16, F32 or U8.
    """
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in (tensors or llama_tensors(config)).items():
        begin, end = end, end + prod(shape) * _WIDTHS[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return directory


def llama_tensors(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a Llama's tensors, by name."""
    width, mlp, vocab = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    kv = width // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors = {"model.embed_tokens.weight": (vocab, width), "lm_head.weight": (vocab, width)}
    tensors["model.norm.weight"] = (width,)
    for layer in range(config["num_hidden_layers"]):
        tensors |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "self_attn.q_proj": (width, width),
                "self_attn.k_proj": (kv, width),
                "self_attn.v_proj": (kv, width),
                "self_attn.o_proj": (width, width),
                "mlp.gate_proj": (mlp, width),
                "mlp.up_proj": (mlp, width),
                "mlp.down_proj": (width, mlp),
                "input_layernorm": (width,),
                "post_attention_layernorm": (width,),
            }.items()
        }
    return tensors
