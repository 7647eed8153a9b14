"""Log probabilities that a request asked for."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw
from baton.stream_events import TokenLogprob


def logprobs(
    raw: Tensor, draws: Sequence[Draw], tokens: Mapping[int, int]
) -> dict[int, TokenLogprob]:
    """Log probabilities of the rows that want them, from the raw logits."""
    asked = [
        (row, draw.sampling.logprobs)
        for row, draw in enumerate(draws)
        if draw.sampling.logprobs is not None
    ]
    if not asked:
        return {}
    rows = [row for row, _ in asked]
    logs = raw[rows].float().log_softmax(dim=-1)
    chosen = torch.tensor([[tokens[row]] for row in rows], device=raw.device)
    own = logs.gather(1, chosen).squeeze(1).tolist()
    most = min(max(count for _, count in asked), raw.shape[1])
    values, ids = logs.topk(most)
    answer = {}
    for (row, count), logprob, ids_of, values_of in zip(
        asked, own, ids.tolist(), values.tolist(), strict=True
    ):
        best = sorted(zip(ids_of, values_of, strict=True), key=lambda pair: (-pair[1], pair[0]))
        answer[row] = TokenLogprob(logprob, tuple(best[:count]))
    return answer
