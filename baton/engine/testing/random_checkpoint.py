"""Small checkpoints of random weights, for tests and for a demo without a model.

They are complete directories in Hugging Face layout, including tokenizer and chat template, and
load like a real model. Their outputs make no sense; equal arguments yield equal outputs.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from baton.engine.testing.random_tokenizer import (
    MIN_VOCAB,
    end_tokens,
    make_tokenizer,
    tokenizer_config,
)

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def write_random_checkpoint(
    path: Path,
    family: str = "llama",
    seed: int = 0,
    *,
    vocab: int = 512,
    layers: int = 2,
    hidden: int = 64,
    mlp: int = 128,
    heads: int = 4,
    kv_heads: int = 2,
    head_size: int = 16,
    experts: int = 8,
    experts_per_token: int = 2,
    context: int = 4096,
    window: int = 0,
    dtype: str = "float32",
    shards: int = 1,
    tied: bool = False,
) -> Path:
    """Write a checkpoint; takes a second.

    Args:
        path: the directory, created if it does not exist.
        family: `llama`, `qwen2` (with biases), `qwen3` (with q/k norms) or `qwen3_moe` (with both
            q/k norms and experts).
        seed: other seeds yield other weights; the tokenizer is always the same.
        vocab: tokens, at least 259: every byte and the special ones.
        layers: transformer blocks.
        hidden: size of the residual stream.
        mlp: size inside the feed-forward part, or inside each expert.
        heads: query heads.
        kv_heads: key and value heads, a divisor of `heads`.
        head_size: values per head, an even number.
        experts: number of a layer's experts, in families with experts.
        experts_per_token: number of them that each token takes.
        context: longest prompt plus output.
        window: last tokens that the upper half of the layers sees; 0: all. Not in `llama`.
        dtype: `float32`, `bfloat16` or `float64`.
        shards: safetensors files; more than one come with an index.
        tied: the output layer is the embedding.

    Returns:
        The path.

    Raises:
        ValueError: the arguments do not define a valid model.
    """
    if family not in _ARCHITECTURES or dtype not in _DTYPES:
        raise ValueError(f"no family {family!r} or no dtype {dtype!r}")
    if vocab < MIN_VOCAB or heads % kv_heads or head_size % 2 or min(layers, shards) < 1:
        raise ValueError("these sizes make no model")
    if window and family == "llama":
        raise ValueError("llama has no window")
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(vocab)
    tokenizer.save(str(path / "tokenizer.json"))
    ends = end_tokens(tokenizer)
    config = {
        "architectures": [_ARCHITECTURES[family]],
        "model_type": family,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": tied,
        "dtype": dtype,
        "eos_token_id": ends[0],
        "bos_token_id": None,
    }
    if window:
        kinds = ["full_attention"] * (layers // 2) + ["sliding_attention"] * (layers - layers // 2)
        config |= {"use_sliding_window": True, "sliding_window": window, "layer_types": kinds}
    if family == "qwen3_moe":
        config |= {
            "num_experts": experts,
            "num_experts_per_tok": experts_per_token,
            "moe_intermediate_size": mlp,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    _write_json(path / "config.json", config)
    _write_json(path / "generation_config.json", {"eos_token_id": ends})
    _write_json(path / "tokenizer_config.json", tokenizer_config(context))
    shape = _Shape(
        vocab, layers, hidden, mlp, heads * head_size, kv_heads * head_size, head_size, experts
    )
    tensors = dict(shape.tensors(family, seed, _DTYPES[dtype], tied=tied))
    _write_tensors(path, tensors, shards)
    return path


class _Shape:
    def __init__(
        self,
        vocab: int,
        layers: int,
        hidden: int,
        mlp: int,
        queries: int,
        keys: int,
        head: int,
        experts: int,
    ) -> None:
        self._vocab = vocab
        self._layers = layers
        self._hidden = hidden
        self._mlp = mlp
        self._queries = queries
        self._keys = keys
        self._head = head
        self._experts = experts

    def tensors(
        self, family: str, seed: int, dtype: torch.dtype, *, tied: bool
    ) -> Iterator[tuple[str, Tensor]]:
        """Return all tensors by name, with sizes that make logits differ clearly."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int, scale: float, mean: float = 0.0) -> Tensor:
            values = torch.randn(shape, generator=generator, dtype=torch.float32)
            return (values * scale + mean).to(dtype)

        def matrix(outputs: int, inputs: int, gain: float = 1.0) -> Tensor:
            return normal(outputs, inputs, scale=gain / inputs**0.5)

        def norm(size: int) -> Tensor:
            return normal(size, scale=0.1, mean=1.0)

        hidden, queries, keys = self._hidden, self._queries, self._keys
        yield "model.embed_tokens.weight", normal(self._vocab, hidden, scale=0.3)
        for layer in range(self._layers):
            at = f"model.layers.{layer}"
            yield f"{at}.input_layernorm.weight", norm(hidden)
            for name, size in (("q", queries), ("k", keys), ("v", keys)):
                yield f"{at}.self_attn.{name}_proj.weight", matrix(size, hidden)
                if family == "qwen2":
                    yield f"{at}.self_attn.{name}_proj.bias", normal(size, scale=0.3)
            if family in ("qwen3", "qwen3_moe"):
                yield f"{at}.self_attn.q_norm.weight", norm(self._head)
                yield f"{at}.self_attn.k_norm.weight", norm(self._head)
            yield f"{at}.self_attn.o_proj.weight", matrix(hidden, queries)
            yield f"{at}.post_attention_layernorm.weight", norm(hidden)
            mlps = [f"{at}.mlp"]
            if family == "qwen3_moe":
                yield f"{at}.mlp.gate.weight", matrix(self._experts, hidden)
                mlps = [f"{at}.mlp.experts.{i}" for i in range(self._experts)]
            for mlp in mlps:
                yield f"{mlp}.gate_proj.weight", matrix(self._mlp, hidden)
                yield f"{mlp}.up_proj.weight", matrix(self._mlp, hidden)
                yield f"{mlp}.down_proj.weight", matrix(hidden, self._mlp)
        yield "model.norm.weight", norm(hidden)
        if not tied:
            yield "lm_head.weight", matrix(self._vocab, hidden, gain=2.0)


def _write_tensors(path: Path, tensors: dict[str, Tensor], shards: int) -> None:
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata=metadata)
        return
    names = list(tensors)
    files = {name: _shard(i * shards // len(names), shards) for i, name in enumerate(names)}
    for file in sorted(set(files.values())):
        part = {name: tensors[name] for name in names if files[name] == file}
        save_file(part, path / file, metadata=metadata)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    _write_json(path / "model.safetensors.index.json", index)


def _shard(number: int, shards: int) -> str:
    return f"model-{number + 1:05}-of-{shards:05}.safetensors"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
