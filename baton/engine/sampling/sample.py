"""Sampling tokens: a pure function of logits, parameters, seed, choice, prompt and output so far.

The definition, in float32 unless stated otherwise:

1. Penalties, logit bias, tokens forbidden or not allowed, and a grammar's mask change the logits
   (`penalties`).
2. At temperature 0 the token is the best, of equals the first. Else each token's weight is the
   integer round(2^34 * exp((logit - best) * (1 / temperature))): the best weighs 2^34, and a token
   with less than 2^-35 of its probability weighs nothing.
3. min-p, top-k and top-p each keep the tokens not below a weight, equals together: min_p * 2^34;
   the k-th greatest; the greatest that sums up, with all above it, to top_p of what is kept so far.
4. One uniform number of 53 bits, taken from a hash of (seed, choice, position), is a point of the
   kept weights' sum: the token is the first by id whose cumulative sum is above it.

Sums are of integers below 2^53 in float64, so they are exact: neither a row's neighbours and
position in a batch, nor threads, nor the order of additions can change a token. What remains is the
exponential, which is torch's, element by element. Tokens are ordered by id, not by weight, so that
logits which differ slightly, as those of two machines do, seldom select another token. There is no
generator state, so any engine can continue any stream. Any change to this breaks streams that
continue on a worker of another version.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw, Sampled, uniform
from baton.engine.sampling.logprobs import logprobs
from baton.engine.sampling.masks import MaskLogits, mask_logits
from baton.engine.sampling.penalties import adjust
from baton.engine.sampling.select_device import select_rows_on_device
from baton.engine.sampling.select_host import select_rows
from baton.engine.sampling.weights import token_weights

_HOST_TILE = 1 << 16
"""Logits per thread that are processed together: with their weights, they fit a core's cache."""
_DEVICE_TILE = 1 << 24
"""The same on other devices, where sorting and summing take 32 bytes for each logit."""


def sample(logits: Tensor, draws: Sequence[Draw], mask: MaskLogits = mask_logits) -> list[Sampled]:
    """Sample one token per row.

    Args:
        logits: [rows, vocab], any float type, any device; taken as float32. Not changed. A row
            whose best logit is not finite still yields a token.
        draws: one per row.
        mask: applies masks, where draws have any.

    Waits for the device once, and again if log probabilities are requested.
    """
    greedy = [row for row, draw in enumerate(draws) if draw.sampling.temperature == 0]
    random = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    found = [_best(_adjusted(logits, draws, tile, mask)) for tile in _tiles(greedy, logits)]
    found += [
        _draw(_adjusted(logits, draws, tile, mask), [draws[row] for row in tile])
        for tile in _tiles(random, logits)
    ]
    tokens = dict(zip(greedy + random, torch.cat(found).tolist(), strict=True)) if found else {}
    reported = logprobs(logits, draws, tokens)
    return [Sampled(tokens[row], reported.get(row)) for row in range(len(draws))]


def _tiles(rows: Sequence[int], logits: Tensor) -> Iterator[Sequence[int]]:
    """Yield the rows, as many together as fit into memory near the processor."""
    on_host = logits.device.type == "cpu"
    elements = _HOST_TILE * torch.get_num_threads() if on_host else _DEVICE_TILE
    size = max(1, elements // logits.shape[1])
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


def _adjusted(
    logits: Tensor, draws: Sequence[Draw], rows: Sequence[int], mask: MaskLogits
) -> Tensor:
    """Return rows as float32 with their penalties; the logits' own memory if nothing changes."""
    if rows[-1] - rows[0] == len(rows) - 1:
        taken = logits[rows[0] : rows[-1] + 1]
    else:
        taken = logits.index_select(0, torch.tensor(rows, device=logits.device))
    values = taken.float()
    copied = values is not taken and values.is_contiguous()
    return adjust(values, [draws[row] for row in rows], mask, in_place=copied)


def _best(logits: Tensor) -> Tensor:
    if logits.device.type == "cpu":
        # Ten times as fast as torch.
        return torch.tensor([int(row.argmax()) for row in logits.numpy()])
    return logits.argmax(dim=-1)


def _draw(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    points = [
        uniform(draw.sampling.seed or 0, draw.choice, len(draw.tokens) - draw.prompt_tokens)
        for draw in draws
    ]
    weights = token_weights(logits, draws)
    sampling = [draw.sampling for draw in draws]
    if logits.device.type == "cpu":
        return torch.tensor(select_rows(weights, sampling, points))
    return select_rows_on_device(weights, sampling, points)
