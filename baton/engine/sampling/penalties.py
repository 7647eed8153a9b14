"""Changes to logits by penalties, bias, and forbidden or allowed tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.sampling.bad_words import forbidden as forbidden_tokens
from baton.engine.sampling.counts import TokenCounts, has_penalties
from baton.engine.sampling.draw import Draw
from baton.engine.sampling.masks import MaskLogits, mask_logits

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


def adjust(
    logits: Tensor,
    draws: Sequence[Draw],
    mask: MaskLogits = mask_logits,
    *,
    in_place: bool = False,
) -> Tensor:
    """Return logits after penalties, then bias, then forbidden or allowed tokens.

    Only the affected tokens are changed, in all rows together.

    Args:
        logits: float32 [rows, vocab]. Not changed, unless `in_place`.
        draws: one per row.
        mask: applies masks, where draws have any.
        in_place: whether the logits are a copy that nothing else reads.

    Returns:
        The logits themselves if nothing changes.
    """
    if not any(_changes(draw) for draw in draws):
        return logits
    out = logits if in_place else logits.clone(memory_format=torch.contiguous_format)
    _penalize(out, draws)
    _bias(out, draws)
    _restrict(out, draws)
    masked = [(row, draw.mask) for row, draw in enumerate(draws) if draw.mask is not None]
    if masked:
        mask(out, [row for row, _ in masked], np.stack([words for _, words in masked]))
    return out


def _changes(draw: Draw) -> bool:
    sampling = draw.sampling
    return bool(
        sampling.logit_bias
        or sampling.allowed_token_ids
        or draw.forbidden
        or sampling.bad_word_ids
        or draw.mask is not None
        or has_penalties(sampling)
    )


def _penalize(out: Tensor, draws: Sequence[Draw]) -> None:
    rows = [row for row, draw in enumerate(draws) if has_penalties(draw.sampling)]
    if not rows:
        return
    ids: list[Ids] = []
    less: list[Floats] = []
    for row in rows:
        counts, sampling = _counts(draws[row]), draws[row].sampling
        ids.append(np.frombuffer(counts.ids, dtype=np.int64))
        times = np.frombuffer(counts.times, dtype=np.float32)
        seen = (times > 0).astype(np.float32)
        frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
        less.append(np.float32(frequency) * times + np.float32(presence) * seen)
    repetition = np.array([draws[row].sampling.repetition_penalty for row in rows], np.float32)
    library: Any = np
    flat: Any = out.view(-1)
    index: Any = _flat_ids(rows, ids, out.shape[1])
    by: Any = repetition.repeat([each.size for each in ids])
    lowered: Any = np.concatenate(less)
    if out.device.type == "cpu":
        # For so few numbers, numpy takes a third of torch's time.
        flat = flat.numpy()
    else:
        library = torch
        index, by, lowered = (
            torch.from_numpy(each).to(out.device) for each in (index, by, lowered)
        )
    at = flat[index]
    flat[index] = library.where(at > 0, at / by, at * by) - lowered


def _counts(draw: Draw) -> TokenCounts:
    if draw.counts is not None:
        return draw.counts
    counts = TokenCounts(draw.prompt_tokens)
    counts.catch_up(draw.tokens)
    return counts


def _bias(out: Tensor, draws: Sequence[Draw]) -> None:
    rows = [row for row, draw in enumerate(draws) if draw.sampling.logit_bias]
    if not rows:
        return
    biases = [draws[row].sampling.logit_bias for row in rows]
    values = np.concatenate([np.fromiter(each.values(), np.float32, len(each)) for each in biases])
    index = _index(out, rows, [np.fromiter(each, np.int64, len(each)) for each in biases])
    out.view(-1)[index] += torch.from_numpy(values).to(out.device)


def _restrict(out: Tensor, draws: Sequence[Draw]) -> None:
    limited: list[int] = []
    allowed: list[Ids] = []
    rows: list[int] = []
    forbidden: list[Ids] = []
    for row, draw in enumerate(draws):
        if draw.mask is not None:
            continue  # forbidden tokens have been removed from it
        barred = forbidden_tokens(draw)
        if draw.sampling.allowed_token_ids:
            every = set(draw.sampling.allowed_token_ids)
            kept = every - barred or every  # at least one token remains
            limited.append(row)
            allowed.append(np.fromiter(kept, np.int64, len(kept)))
        elif barred:
            rows.append(row)
            forbidden.append(np.fromiter(barred, np.int64, len(barred)))
    flat = out.view(-1)
    if limited:
        index = _index(out, limited, allowed)
        values = flat[index]
        out[torch.tensor(limited, device=out.device)] = -torch.inf
        flat[index] = values
    if rows:
        flat[_index(out, rows, forbidden)] = -torch.inf


def _index(out: Tensor, rows: Sequence[int], ids: Sequence[Ids]) -> Tensor:
    """Return the positions of rows' tokens in the flattened logits."""
    return torch.from_numpy(_flat_ids(rows, ids, out.shape[1])).to(out.device)


def _flat_ids(rows: Sequence[int], ids: Sequence[Ids], vocab: int) -> Ids:
    return np.concatenate([each + row * vocab for row, each in zip(rows, ids, strict=True)])
