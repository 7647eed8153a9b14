"""Rotary position embedding (arXiv:2104.09864) with the scalings of Hugging Face checkpoints."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from baton.engine.checkpoint.rope_config import LongRope, Rope, ScaledRope, YarnRope


@dataclass(frozen=True, slots=True)
class Rotary:
    """How queries and keys are rotated at each position."""

    frequencies: Tensor
    """Radians per position of each pair: float32 [rotary_size / 2]."""
    attention_factor: float
    """Factor of cosines and sines."""


def make_rotary(rope: Rope, rotary_size: int, device: torch.device) -> Rotary:
    """Return the rotation of a head's first `rotary_size` values."""
    factor = rope.attention_factor if isinstance(rope, ScaledRope) else 1.0
    return Rotary(inverse_frequencies(rope, rotary_size).to(device), factor)


def inverse_frequencies(rope: Rope, rotary_size: int) -> Tensor:
    """Return radians per position of each pair: float32 [rotary_size / 2].

    Computed in float32 and in the order of transformers' modeling_rope_utils.py, as in training:
    at position 3,000 the last bit matters.
    """
    exponents = torch.arange(0, rotary_size, 2, dtype=torch.int64).float() / rotary_size
    if isinstance(rope, LongRope):
        return 1.0 / (torch.tensor(rope.pair_factors) * rope.theta**exponents)
    if isinstance(rope, YarnRope):
        return _yarn(rope, exponents, rotary_size)
    plain = 1.0 / (rope.theta**exponents)
    if rope.scaling == "linear":
        return plain / rope.factor
    if rope.scaling == "llama3":
        return _llama3(rope, plain)
    return plain


def _llama3(rope: Rope, plain: Tensor) -> Tensor:
    """Llama 3.1: long waves are stretched, short ones kept, and those in between blended."""
    wave_length = 2 * math.pi / plain
    longest = rope.original_context_tokens / rope.low_freq_factor
    shortest = rope.original_context_tokens / rope.high_freq_factor
    keep = (rope.original_context_tokens / wave_length - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    stretched = torch.where(wave_length > longest, plain / rope.factor, plain)
    blended = (1 - keep) * stretched / rope.factor + keep * stretched
    between = (wave_length <= longest) & (wave_length >= shortest)
    return torch.where(between, blended, stretched)


def _yarn(rope: YarnRope, exponents: Tensor, rotary_size: int) -> Tensor:
    """Blend stretched and plain frequencies, by a ramp over the pairs (arXiv:2309.00071, 3.2)."""

    def pair(rotations_in_context: float) -> float:
        """Return the pair that makes so many rotations within the original context."""
        waves = rope.original_context_tokens / (rotations_in_context * 2 * math.pi)
        return (rotary_size * math.log(waves)) / (2 * math.log(rope.theta))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_size - 1)
    if low == high:
        high += 0.001  # a step is a steep ramp
    ramp = ((torch.arange(rotary_size // 2).float() - low) / (high - low)).clamp(0, 1)
    radians = rope.theta**exponents
    keep = 1 - ramp
    return 1.0 / (rope.factor * radians) * (1 - keep) + 1.0 / radians * keep


def rotations(rotary: Rotary, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [tokens, 1, rotary_size / 2], for positions [tokens]."""
    angles = (positions.float().unsqueeze(-1) * rotary.frequencies).unsqueeze(1)
    cosines, sines = angles.cos(), angles.sin()
    if rotary.attention_factor != 1.0:
        cosines, sines = cosines * rotary.attention_factor, sines * rotary.attention_factor
    return cosines.to(dtype), sines.to(dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate x [tokens, heads, head_size]; pairs are halves of a head, as in Hugging Face."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)
