"""Select tokens by their rows' weights, on any device: all rows together, without waiting for it.

Selects the same tokens as `select_host`, which on a CPU is several times faster because it sorts
less.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from baton.engine.sampling.weights import SCALE
from baton.sampling import SamplingParams


def select_rows_on_device(
    weights: Tensor, sampling: Sequence[SamplingParams], points: Sequence[float]
) -> Tensor:
    """Return the token at each row's point of its distribution.

    Args:
        weights: float32 [rows, vocab], as of `token_weights`.
        sampling: parameters that limit the kept tokens, one per row.
        points: in [0, 1), one per row: positions in the kept tokens' cumulative distribution over
            ids.

    Returns:
        Ids, int64 [rows].
    """
    device, vocab = weights.device, weights.shape[1]

    def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)

    floor = column([max(1.0, each.min_p * SCALE) for each in sampling], torch.float32)
    limited = any(0 < each.top_k < vocab for each in sampling)
    nucleus = any(each.top_p < 1 for each in sampling)
    if limited or nucleus:
        descending = weights.sort(dim=-1, descending=True).values
    if limited:
        last = column([min(each.top_k or vocab, vocab) - 1 for each in sampling], torch.int64)
        floor = torch.maximum(floor, descending.gather(1, last))
    if nucleus:
        sums = _sums(descending, floor)
        top_p = column([each.top_p for each in sampling], torch.float64)
        reaching = (sums < top_p * sums[:, -1:]).sum(dim=-1, keepdim=True)
        at = descending.gather(1, reaching.clamp(max=vocab - 1))
        floor = torch.maximum(floor, at.masked_fill(top_p >= 1, 0))
    sums = _sums(weights, floor)
    target = column(points, torch.float64) * sums[:, -1:]
    found = torch.searchsorted(sums, target, right=True)
    unknown = sums[:, -1:].isnan()
    return torch.where(unknown, weights.argmax(dim=-1, keepdim=True), found).squeeze(1)


def _sums(weights: Tensor, floor: Tensor) -> Tensor:
    """Return cumulative sums, float64 [rows, vocab], of the weights not below the floor."""
    return weights.masked_fill(weights < floor, 0).cumsum(dim=-1, dtype=torch.float64)
