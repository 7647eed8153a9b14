"""Choosing a token by its row's weights, on the CPU: a row at a time, and only what can be kept.

Weights are integers and float64 adds them exactly, so it is free in which order and how much is
looked at. `select_device` gives the same tokens.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.sampling.weights import BLOCK, SCALE, block_sums
from baton.sampling import SamplingParams

_FEW = 4096
"""Up to so many tokens are gathered and sorted; more are counted by value first."""
_VALUE_BITS = 18
"""Low bits of a float32 that counting by value leaves out: 32 bins per power of two."""
_FIRST_BIN = 0x3F800000 >> _VALUE_BITS
"""The bin of weight 1."""
_BINS = (int(np.float32(SCALE).view(np.int32)) >> _VALUE_BITS) + 1

Floats = NDArray[np.floating[Any]]


def select(weights: Tensor, sums: Tensor, sampling: SamplingParams, point: float) -> int:
    """Return the token at a point of the distribution.

    Args:
        weights: float32 [vocab], as of `token_weights`.
        sums: float64 [blocks], as of `block_sums`.
        sampling: what is kept.
        point: in [0, 1), where in the kept tokens' cumulative distribution over ids.
    """
    row = weights.numpy()
    total = float(sums.sum())
    if not total >= SCALE:  # NaN
        return int(row.argmax())
    nucleus = sampling.top_p < 1
    floor = max(1.0, float(np.float32(sampling.min_p * SCALE)))
    if 0 < sampling.top_k < row.size:
        floor = max(floor, _kth(row, sampling.top_k))
    at_least = floor
    if nucleus and floor == 1:
        # All tokens below an equal part of what top-p leaves out weigh less than that together.
        at_least = max(1.0, (1 - sampling.top_p) * total / row.size * 0.999)
    if at_least > 1:
        inside = row >= np.float32(at_least)
        if np.count_nonzero(inside) <= _FEW:
            ids = np.flatnonzero(inside)
            kept = row[ids].astype(np.float64)
            if nucleus:
                share = sampling.top_p * (total if floor == 1 else float(kept.sum()))
                kept[kept < _reaching(kept, share)] = 0
            return int(ids[_find(kept, point)])
    if floor > 1:
        weights, sums = _keep(weights, floor)
    if nucleus:
        weights, sums = _keep(weights, _nucleus(weights, sampling.top_p * float(sums.sum())))
    return _find_in_blocks(weights.numpy(), sums.numpy(), point)


def _keep(weights: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return weights below the floor as 0, and their sums by block."""
    below = float(np.nextafter(np.float32(floor), np.float32(0)))
    kept = torch.nn.functional.threshold(weights, below, 0.0)
    return kept, block_sums(kept.unsqueeze(0))[0]


def _find(kept: Floats, point: float) -> int:
    """Return the first index whose cumulative sum is above that point of the total."""
    sums = kept.cumsum(dtype=np.float64)
    # Below the total even when rounded: the total is below 2^53 and the point at most 1 - 2^-53.
    return int(sums.searchsorted(point * sums[-1], side="right"))


def _find_in_blocks(row: Floats, sums: Floats, point: float) -> int:
    """The same over a whole row, whose sums by block are known."""
    cumulative = sums.cumsum()
    target = point * cumulative[-1]
    block = int(cumulative.searchsorted(target, side="right"))
    before = cumulative[block] - sums[block]
    inside = row[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    return block * BLOCK + int(inside.searchsorted(target - before, side="right"))


def _reaching(values: Floats, share: float) -> float:
    """Return the greatest value such that it and all above it sum up to the share."""
    descending = np.sort(values)[::-1]
    sums = descending.cumsum(dtype=np.float64)
    return float(descending[sums.searchsorted(share, side="left")])


def _nucleus(weights: Tensor, share: float) -> float:
    """The same for many values: by sums over bins of near values, then inside one bin."""
    bins = weights.view(torch.int32) >> _VALUE_BITS
    found = torch.bincount(bins, weights=weights, minlength=_BINS).numpy()[: _FIRST_BIN - 1 : -1]
    sums = found.cumsum()
    at = int(sums.searchsorted(share, side="left"))
    inside = weights.numpy()[bins.numpy() == _BINS - 1 - at]
    return _reaching(inside, share - (sums[at] - found[at]))


def _kth(row: Floats, k: int) -> float:
    """Return the k-th greatest value of a row."""
    # The greatest of each of so many classes: the k-th of them is not above the k-th of all.
    whole = row.size // BLOCK * BLOCK
    maxima = row[:whole].reshape(BLOCK, -1).max(axis=0) if whole else row
    values = row
    if k <= maxima.size:
        values = row[row >= np.sort(maxima)[-k]]
    return float(np.sort(values)[-k])
