"""The forward pass of decoder-only transformers: one path. `ModelOptions` says what differs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from baton.engine.checkpoint.model_config import ModelConfig
from baton.engine.torch.attention import AttentionStep, ScoreOptions
from baton.engine.torch.checkpoint import LayerWeights, Weights
from baton.engine.torch.kernels import Heads, Kernels
from baton.engine.torch.kv.groups import ModelKv
from baton.engine.torch.rope import Rotary, make_rotary, rotations
from baton.engine.torch.rotary_order import padded, rotary_size


@dataclass(frozen=True, slots=True)
class TransformerModel:
    """A model's weights and other data needed to run them."""

    config: ModelConfig
    weights: Weights
    rotaries: tuple[Rotary, ...]
    rotary_of: tuple[int, ...]
    """Which of them each layer uses."""
    embedding_multiplier: float
    """Rounded to the weights' dtype."""


def make_model(config: ModelConfig, weights: Weights) -> TransformerModel:
    """Return a model on the weights' device."""
    options, device = config.options, weights.norm.device
    size = rotary_size(config)
    everywhere = make_rotary(config.rope, size, device)
    local = make_rotary(options.local_rope or config.rope, size, device)
    nowhere = Rotary(torch.zeros_like(everywhere.frequencies), 1.0)
    uses = [int(window > 0) for window in options.windows] or [0] * config.layers
    for layer in options.unrotated_layers:
        uses[layer] = 2
    rotaries = (everywhere, local, nowhere)[: max(uses) + 1]
    multiplier = torch.tensor(options.embedding_multiplier, dtype=weights.norm.dtype).item()
    return TransformerModel(config, weights, rotaries, tuple(uses), multiplier)


def last_hidden(
    model: TransformerModel,
    kv: ModelKv,
    tokens: Tensor,
    steps: Sequence[AttentionStep],
    rows: Tensor,
) -> Tensor:
    """Compute a batch, write its KV and return the input of the model's head.

    Args:
        model: the model.
        kv: its pages.
        tokens: ids [tokens].
        steps: of each group, the location of their KV, and the blocks to which they attend.
        rows: tokens whose logits are needed.

    Returns:
        Hidden states [rows, hidden] after the last norm, in the weights' dtype.
    """
    config, weights, kernels = model.config, model.weights, kv.kernels
    options, epsilon = config.options, config.norm_epsilon
    hidden = _scaled(embedding(tokens, weights.embedding), model.embedding_multiplier)
    turns = [
        padded(rotations(each, steps[0].positions, hidden.dtype), config.head_size)
        for each in model.rotaries
    ]
    delta: Tensor | None = None
    for index, layer in enumerate(weights.layers):
        normed = _add_norm(kernels, hidden, delta, layer.attention_norm, epsilon)
        turn = turns[model.rotary_of[index]]
        attended = _attend(model, kv, steps, index, turn, layer.qkv(normed))
        if index == config.layers - 1:
            # After the last layer's KV only these rows are needed.
            hidden, attended = hidden[rows], attended[rows]
            if not rows.numel():
                return hidden
            if weights.maps is not None:
                weights.maps.select(rows)
        delta = _add_norm(kernels, layer.o(attended), None, layer.attention_out_norm, epsilon)
        delta = _scaled(delta, options.residual_multiplier)
        normed = _add_norm(kernels, hidden, delta, layer.mlp_norm, epsilon)
        delta = _add_norm(kernels, layer.mlp(kernels, normed), None, layer.mlp_out_norm, epsilon)
        delta = _scaled(delta, options.residual_multiplier)
    return kernels.add_norm(hidden, delta, weights.norm, epsilon)


def _attend(
    model: TransformerModel,
    kv: ModelKv,
    steps: Sequence[AttentionStep],
    index: int,
    rotation: tuple[Tensor, Tensor],
    qkv: Tensor,
) -> Tensor:
    """Write a layer's KV and return its attention, as of `Kernels.attend`."""
    config, layer = model.config, model.weights.layers[index]
    q_norm, k_norm = layer.q_norm, layer.k_norm
    if config.options.wide_head_norms:
        _norm_across_heads(kv.kernels, layer, qkv, config.norm_epsilon)
        q_norm = k_norm = None
    options = config.options
    window = options.windows[index] if options.windows else 0
    scores = ScoreOptions(options.attention_scale, window, options.attention_softcap, layer.sinks)
    group, place = kv.places[index]
    heads = Heads(place, rotation, q_norm, k_norm, config.norm_epsilon, scores)
    return kv.kernels.attend(kv.pools[group], steps[group], heads, qkv)


def _norm_across_heads(kernels: Kernels, layer: LayerWeights, qkv: Tensor, epsilon: float) -> None:
    """Normalize a token's queries together, and its keys, in place."""
    at = 0
    for weight in (layer.q_norm, layer.k_norm):
        if weight is not None:
            part = qkv[:, at : at + weight.numel()]
            part.copy_(kernels.add_norm(part.contiguous(), None, weight, epsilon))
            at += weight.numel()


def _add_norm(
    kernels: Kernels, hidden: Tensor, delta: Tensor | None, weight: Tensor | None, epsilon: float
) -> Tensor:
    """Add delta to hidden in place; return it, normalized if there is a weight."""
    if weight is not None:
        return kernels.add_norm(hidden, delta, weight, epsilon)
    if delta is not None:
        hidden += delta
    return hidden


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor


def element_type(name: str) -> torch.dtype:
    """Return the torch type for a data type's name."""
    return {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float64": torch.float64,
    }[name]
