"""Logits as integer weights, whose sums are exact regardless of the order of addition."""

from collections.abc import Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw

SCALE = 2.0**34
"""Weight of the best token. Sums over 2^19 tokens stay below 2^53, up to which float64 is exact."""
BLOCK = 64
"""Adjacent tokens whose weights are summed first."""
_WEIGHTLESS = -40.0
"""Exponent whose weight rounds to nothing: 2^34 e^-40 is below 1e-7. Libraries take four times as
long for minus infinity, and twenty-five times where the exponential is denormal.
"""
_STEEPEST = torch.finfo(torch.float32).max


def token_weights(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Return round(SCALE * exp((logit - best) / temperature)).

    Every operation rounds each element separately, so that neither neighbours nor position matter.

    Args:
        logits: float32 [rows, vocab]. Not changed.
        draws: one per row, of a temperature above zero.

    Returns:
        Integers in float32 [rows, vocab]; all of a row NaN if its best logit is not finite.
    """
    # float32 holds no temperature below the reciprocal of its greatest number.
    steepness = [min(1 / max(draw.sampling.temperature, 1e-300), _STEEPEST) for draw in draws]
    scaled = logits - logits.amax(dim=-1, keepdim=True)
    scaled *= torch.tensor(steepness, dtype=torch.float32, device=logits.device).unsqueeze(1)
    scaled.clamp_(min=_WEIGHTLESS)
    return scaled.exp_().mul_(SCALE).round_()


def block_sums(kept: Tensor) -> Tensor:
    """Return float64 [rows, blocks]: sums over BLOCK adjacent tokens, over fewer at the end."""
    rows, vocab = kept.shape
    whole = vocab // BLOCK * BLOCK
    sums = kept[:, :whole].view(rows, -1, BLOCK).sum(dim=-1, dtype=torch.float64)
    if whole == vocab:
        return sums
    rest = kept[:, whole:].sum(dim=-1, keepdim=True, dtype=torch.float64)
    return torch.cat((sums, rest), dim=1)
