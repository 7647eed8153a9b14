"""Select a token by its row's weights, on the CPU: row by row, and only among tokens that can be
kept.

Weights are integers and float64 adds them exactly, so any order, and any subset that suffices, may
be summed. `select_device` selects the same tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.sampling.weights import BLOCK, SCALE, block_sums
from baton.sampling import SamplingParams

_FEW = 4096
"""Maximum number of tokens that are gathered and sorted; more are first counted by value."""
_VALUE_BITS = 18
"""Low bits of a float32 that counting by value ignores: 32 bins per power of two."""
_FIRST_BIN = 0x3F800000 >> _VALUE_BITS
"""The bin of weight 1."""
_BINS = (int(np.float32(SCALE).view(np.int32)) >> _VALUE_BITS) + 1

_ONE = np.float32(1)

Floats = NDArray[np.floating[Any]]


def select_rows(
    weights: Tensor, sampling: Sequence[SamplingParams], points: Sequence[float]
) -> list[int]:
    """Return the token at each row's point of its distribution.

    Args:
        weights: float32 [rows, vocab], as of `token_weights`.
        sampling: parameters that limit the kept tokens, one per row.
        points: in [0, 1), one per row: positions in the kept tokens' cumulative distribution over
            ids.
    """
    sums = block_sums(weights).numpy()
    totals = sums.sum(axis=1).tolist()
    return [
        _select(*of_row)
        for of_row in zip(weights.numpy(), sums, totals, sampling, points, strict=True)
    ]


def _select(row: Floats, sums: Floats, total: float, sampling: SamplingParams, point: float) -> int:
    if not total >= SCALE:  # NaN
        return int(row.argmax())
    floor = _floor(row, sampling)
    nucleus = sampling.top_p < 1
    least = floor
    if nucleus and floor == 1:
        # All tokens below an equal part of what top-p leaves out together weigh less than it.
        least = np.float32(max(1.0, (1 - sampling.top_p) * total / row.size * 0.999))
    if least > 1:
        inside = row >= least
        if np.count_nonzero(inside) <= _FEW:
            ids = inside.nonzero()[0]
            kept = row[ids].astype(np.float64)
            if nucleus:
                share = sampling.top_p * (total if floor == 1 else kept.sum())
                kept[kept < _reaching(kept, share)] = 0
            return int(ids[_find(kept, point)])
    if floor > 1:
        row, sums = _keep(row, floor)
    if nucleus:
        row, sums = _keep(row, _nucleus(row, sampling.top_p * sums.sum()))
    return _find_in_blocks(row, sums, point)


def _floor(row: Floats, sampling: SamplingParams) -> np.float32:
    """Return the weight below which min-p and top-k keep no token; at least 1."""
    floor = _ONE
    if sampling.min_p > 0:
        floor = max(floor, np.float32(sampling.min_p * SCALE))
    if 0 < sampling.top_k < row.size:
        floor = max(floor, _kth(row, sampling.top_k))
    return floor


def _keep(row: Floats, floor: np.float32) -> tuple[Floats, Floats]:
    """Return weights below the floor as 0, and their sums by block."""
    below = float(np.nextafter(floor, np.float32(0)))
    kept = torch.nn.functional.threshold(torch.from_numpy(row), below, 0.0)
    return kept.numpy(), block_sums(kept.unsqueeze(0))[0].numpy()


def _find(kept: Floats, point: float) -> int:
    """Return the first index whose cumulative sum exceeds that point of the total."""
    sums = kept.cumsum()
    # Below the total even when rounded: the total is below 2^53 and the point at most 1 - 2^-53.
    return int(sums.searchsorted(point * sums[-1], side="right"))


def _find_in_blocks(row: Floats, sums: Floats, point: float) -> int:
    """Return the same for a whole row with known sums by block."""
    cumulative = sums.cumsum()
    target = point * cumulative[-1]
    block = int(cumulative.searchsorted(target, side="right"))
    before = cumulative[block] - sums[block]
    inside = row[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    return block * BLOCK + int(inside.searchsorted(target - before, side="right"))


def _reaching(values: Floats, share: float) -> np.float32:
    """Return the greatest value such that it and all greater ones sum up to the share."""
    ascending = values.copy()
    ascending.sort()
    descending = ascending[::-1]
    sums = descending.cumsum(dtype=np.float64)
    return np.float32(descending[sums.searchsorted(share, side="left")])


def _nucleus(row: Floats, share: float) -> np.float32:
    """Return the same for many values: by sums over bins of near values, then inside one bin."""
    bins = row.view(np.int32) >> _VALUE_BITS
    # Torch takes half of numpy's time here. It adds in the type of the weights.
    weights = torch.from_numpy(row).double()
    by_bin = torch.bincount(torch.from_numpy(bins), weights, minlength=_BINS).numpy()
    descending = by_bin[: _FIRST_BIN - 1 : -1]
    sums = descending.cumsum()
    at = int(sums.searchsorted(share, side="left"))
    return _reaching(row[bins == _BINS - 1 - at], share - (sums[at] - descending[at]))


def _kth(row: Floats, k: int) -> np.float32:
    """Return the k-th greatest weight of a row."""
    values = row
    whole = row.size // BLOCK * BLOCK
    if k <= whole // BLOCK:
        # With as many classes as blocks: the k-th of their maxima does not exceed the k-th of all.
        greatest = row[:whole].reshape(BLOCK, -1).max(axis=0)
        greatest.sort()
        values = row[row >= greatest[-k]]
    return np.float32(np.sort(values)[-k])
