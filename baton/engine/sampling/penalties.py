"""Logits as penalties, bias, and forbidden or allowed tokens change them."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw


def adjust(raw: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Penalties, bias, and tokens that may not be drawn."""
    out = raw
    for row, draw in enumerate(draws):
        sampling = draw.sampling
        repetition = sampling.repetition_penalty != 1.0
        counted = sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0
        allowed = sampling.allowed_token_ids
        if not (repetition or counted or sampling.logit_bias or draw.forbidden or allowed):
            continue
        if out is raw:
            out = raw.clone()
        values = out[row]
        if repetition:
            seen = torch.tensor(sorted(set(draw.tokens)), device=raw.device)
            at = values[seen]
            penalty = sampling.repetition_penalty
            values[seen] = torch.where(at > 0, at / penalty, at * penalty)
        if counted:
            counts = Counter(draw.tokens[draw.prompt_tokens :])
            ids = torch.tensor(list(counts), dtype=torch.int64, device=raw.device)
            times = torch.tensor(list(counts.values()), dtype=raw.dtype, device=raw.device)
            values[ids] -= sampling.frequency_penalty * times + sampling.presence_penalty
        if sampling.logit_bias:
            ids = torch.tensor(list(sampling.logit_bias), device=raw.device)
            bias = list(sampling.logit_bias.values())
            values[ids] += torch.tensor(bias, dtype=raw.dtype, device=raw.device)
        if allowed:
            kept = set(allowed) - draw.forbidden or set(allowed)  # never nothing
            ids = torch.tensor(sorted(kept), device=raw.device)
            out[row] = torch.full_like(values, -torch.inf).index_copy_(0, ids, values[ids])
        elif draw.forbidden:
            values[torch.tensor(sorted(draw.forbidden), device=raw.device)] = -torch.inf
    return out
