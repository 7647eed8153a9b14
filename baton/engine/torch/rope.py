"""Rotary position embedding (arXiv:2104.09864) with the scalings of Hugging Face checkpoints."""

import math

import torch
from torch import Tensor

from baton.engine.checkpoint.model_config import Rope


def inverse_frequencies(rope: Rope, head_size: int) -> Tensor:
    """Return radians per position of each pair: float32 [head_size / 2].

    Computed in float32, as in training: at position 3,000 the last bit matters.
    """
    exponents = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
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


def rotations(frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [tokens, 1, head_size / 2], for positions [tokens]."""
    angles = (positions.float().unsqueeze(-1) * frequencies).unsqueeze(1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate x [tokens, heads, head_size]; pairs are halves of a head, as in Hugging Face."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)
