"""Drawing tokens: a pure function of logits, parameters, seed, choice, prompt and output so far.

In this order: penalties, logit bias, tokens forbidden or not allowed; then temperature, min-p,
top-k, top-p, each of which keeps the tokens above a threshold (equals are kept together); then one
uniform number, taken from a hash of (seed, choice, position), picks by the inverse of the
cumulative distribution over ids. No generator has a state, so any engine continues any stream.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw, Sampled, uniform
from baton.engine.sampling.logprobs import logprobs
from baton.engine.sampling.penalties import adjust

_CANDIDATES = 1024
"""Most likely tokens among which top-p is looked for before a whole row is sorted."""


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[Sampled]:
    """Draw one token per row.

    Args:
        logits: [rows, vocab], any float type, any device. Not changed.
        draws: one per row.

    Waits for the device once, and again only where top-p reaches beyond the 1,024 most likely
    tokens of a row or where log probabilities are asked for.
    """
    raw = logits if logits.dtype is torch.float64 else logits.float()
    adjusted = adjust(raw, draws)
    found = adjusted.argmax(dim=-1)
    short = torch.zeros_like(found)
    random = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if random:
        chosen = torch.tensor(random, device=raw.device)
        found[chosen], short[chosen] = _draw(adjusted[chosen], [draws[i] for i in random])
    tokens, again = torch.stack((found, short)).tolist()
    for row in (row for row, flag in enumerate(again) if flag):
        one, _ = _draw(adjusted[row : row + 1], [draws[row]], candidates=raw.shape[1])
        tokens[row] = int(one.item())
    reported = logprobs(raw, draws, tokens)
    return [Sampled(token, reported.get(row)) for row, token in enumerate(tokens)]


def _draw(
    rows: Tensor, draws: Sequence[Draw], candidates: int = _CANDIDATES
) -> tuple[Tensor, Tensor]:
    """Draw from rows whose temperature is above zero.

    Args:
        rows: [rows, vocab]
        draws: one per row.
        candidates: among how many most likely tokens top-p is looked for.

    Returns:
        Tokens [rows], and [rows] with 1 where these were too few, so that the token is wrong.
    """
    settings = [draw.sampling for draw in draws]
    # From here on the best token is at 0, so that no temperature is too small to divide by, but
    # for one that rows of this type cannot tell from 0.
    temperature = _column(rows, [each.temperature for each in settings])
    temperature = temperature.clamp(min=torch.finfo(rows.dtype).tiny)
    scaled = (rows - rows.amax(dim=-1, keepdim=True)) / temperature
    threshold = torch.full_like(temperature, -torch.inf)
    if any(each.min_p > 0 for each in settings):
        threshold = _column(rows, [each.min_p for each in settings]).log()
    short = torch.zeros(len(draws), dtype=torch.bool, device=rows.device)
    vocab = rows.shape[1]
    top_k = [min(each.top_k, vocab) for each in settings]
    nucleus = any(each.top_p < 1 for each in settings)
    if nucleus or any(top_k):
        count = min(vocab, max(max(top_k), candidates if nucleus else 1))
        best = scaled.topk(count).values
        if any(top_k):
            last = torch.tensor([[max(k, 1) - 1] for k in top_k], device=rows.device)
            unlimited = torch.tensor([[k == 0] for k in top_k], device=rows.device)
            kth = best.gather(1, last).masked_fill(unlimited, -torch.inf)
            threshold = torch.maximum(threshold, kth)
        if nucleus:
            top_p = _column(rows, [each.top_p for each in settings])
            at, short = _nucleus(scaled, best, threshold, top_p)
            threshold = torch.maximum(threshold, at)
    weights = scaled.exp().masked_fill(scaled < threshold, 0)
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    points = [
        uniform(draw.sampling.seed or 0, draw.choice, len(draw.tokens) - draw.prompt_tokens)
        for draw in draws
    ]
    # Below the total even after rounding, so that the first sum above it belongs to a weight.
    target = torch.tensor(points, dtype=torch.float64, device=rows.device) * cumulative[:, -1]
    found = torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1)
    return found.clamp(max=vocab - 1), short.long()


def _nucleus(
    scaled: Tensor, best: Tensor, threshold: Tensor, top_p: Tensor
) -> tuple[Tensor, Tensor]:
    """The value of the last token of the smallest set with a share of top_p; and where unknown.

    Args:
        scaled: [rows, vocab]
        best: [rows, some], the greatest of `scaled`, greatest first.
        threshold: [rows, 1]; tokens below it are out already.
        top_p: [rows, 1]; 1 keeps all.
    """
    kept = scaled.exp().masked_fill(scaled < threshold, 0)
    share = kept.sum(dim=-1, keepdim=True, dtype=torch.float64) * top_p
    sums = best.exp().masked_fill(best < threshold, 0).cumsum(dim=-1, dtype=torch.float64)
    last = (sums < share).sum(dim=-1, keepdim=True)
    everything = top_p >= 1
    beyond = last >= best.shape[1]
    at = best.gather(1, last.clamp(max=best.shape[1] - 1))
    at = at.masked_fill(everything | beyond, -torch.inf)
    some_left = best.shape[1] < scaled.shape[1]
    return at, ((beyond & ~everything).squeeze(1) & some_left)


def _column(like: Tensor, values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
