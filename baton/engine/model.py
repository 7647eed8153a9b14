"""The forward pass of Llama, Qwen2 and Qwen3: one path, in which biases and q/k norms may be."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, silu

from baton.engine.attention import PagedKv, Step
from baton.engine.checkpoint import LayerWeights, Linear, Weights
from baton.engine.config import ModelConfig
from baton.engine.rope import inverse_frequencies, rotate, rotations


@dataclass(frozen=True, slots=True)
class Model:
    """Weights and what is needed to run them."""

    config: ModelConfig
    weights: Weights
    frequencies: Tensor
    """Of rotary position embedding, float32 [head_size / 2]."""


def make_model(config: ModelConfig, weights: Weights) -> Model:
    """Put a model together on the weights' device."""
    frequencies = inverse_frequencies(config.rope, config.head_size)
    return Model(config, weights, frequencies.to(weights.norm.device))


def forward(model: Model, kv: PagedKv, tokens: Tensor, step: Step, rows: Tensor) -> Tensor:
    """Compute a batch and store its KV.

    Args:
        model: the model.
        kv: its pages.
        tokens: ids [tokens].
        step: where their KV goes and what they attend to.
        rows: which tokens' logits are wanted.

    Returns:
        Logits [rows, vocab] in the weights' dtype.
    """
    config, weights = model.config, model.weights
    hidden = embedding(tokens, weights.embedding)
    rotation = rotations(model.frequencies, step.positions, hidden.dtype)
    for index, layer in enumerate(weights.layers):
        normed = _norm(hidden, layer.attention_norm, config)
        q, k, v = _project(config, layer, normed, rotation)
        hidden = hidden + _linear(kv.attend(index, step, q, k, v), layer.o)
        normed = _norm(hidden, layer.mlp_norm, config)
        gated = silu(_linear(normed, layer.gate)) * _linear(normed, layer.up)
        hidden = hidden + _linear(gated, layer.down)
    return linear(_norm(hidden[rows], weights.norm, config), weights.head)


def _project(
    config: ModelConfig, layer: LayerWeights, hidden: Tensor, rotation: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """q [tokens, heads, size], k and v [tokens, kv_heads, size], rotated."""
    q = _linear(hidden, layer.q).view(-1, config.heads, config.head_size)
    k = _linear(hidden, layer.k).view(-1, config.kv_heads, config.head_size)
    v = _linear(hidden, layer.v).view(-1, config.kv_heads, config.head_size)
    if layer.q_norm is not None:
        q = _norm(q, layer.q_norm, config)
    if layer.k_norm is not None:
        k = _norm(k, layer.k_norm, config)
    return rotate(q, *rotation), rotate(k, *rotation), v


def _norm(x: Tensor, weight: Tensor, config: ModelConfig) -> Tensor:
    return rms_norm(x, weight.shape, weight, config.norm_epsilon)


def _linear(x: Tensor, by: Linear) -> Tensor:
    return linear(x, by.weight, by.bias)


def element_type(name: str) -> torch.dtype:
    """The torch type of a dtype's name."""
    return {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float64": torch.float64,
    }[name]
