"""The forward pass of Llama, Qwen2 and Qwen3: one path, with biases and q/k norms if any."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from baton.engine.checkpoint.model_config import ModelConfig
from baton.engine.torch.attention import AttentionStep
from baton.engine.torch.checkpoint import Weights
from baton.engine.torch.kernels import Heads
from baton.engine.torch.pages import PagedKv
from baton.engine.torch.rope import Rotary, make_rotary, rotations


@dataclass(frozen=True, slots=True)
class TransformerModel:
    """A model's weights and other data needed to run them."""

    config: ModelConfig
    weights: Weights
    rotary: Rotary


def make_model(config: ModelConfig, weights: Weights) -> TransformerModel:
    """Return a model on the weights' device."""
    rotary = make_rotary(config.rope, config.head_size, weights.norm.device)
    return TransformerModel(config, weights, rotary)


def last_hidden(
    model: TransformerModel, kv: PagedKv, tokens: Tensor, step: AttentionStep, rows: Tensor
) -> Tensor:
    """Compute a batch, write its KV and return the input of the model's head.

    Args:
        model: the model.
        kv: its pages.
        tokens: ids [tokens].
        step: the location of their KV, and the blocks to which they attend.
        rows: tokens whose logits are needed.

    Returns:
        Hidden states [rows, hidden] after the last norm, in the weights' dtype.
    """
    config, weights, kernels = model.config, model.weights, kv.kernels
    hidden = embedding(tokens, weights.embedding)
    rotation = rotations(model.rotary, step.positions, hidden.dtype)
    delta: Tensor | None = None
    for index, layer in enumerate(weights.layers):
        normed = kernels.add_norm(hidden, delta, layer.attention_norm, config.norm_epsilon)
        heads = Heads(index, rotation, layer.q_norm, layer.k_norm, config.norm_epsilon)
        attended = kernels.attend(kv, step, heads, layer.qkv(normed))
        if index == config.layers - 1:
            # After the last layer's KV only these rows are needed.
            hidden, attended = hidden[rows], attended[rows]
            if not rows.numel():
                return hidden
        normed = kernels.add_norm(hidden, layer.o(attended), layer.mlp_norm, config.norm_epsilon)
        delta = layer.down(kernels.gate(layer.gate_up(normed)))
    return kernels.add_norm(hidden, delta, weights.norm, config.norm_epsilon)


def element_type(name: str) -> torch.dtype:
    """Return the torch type for a data type's name."""
    return {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float64": torch.float64,
    }[name]
