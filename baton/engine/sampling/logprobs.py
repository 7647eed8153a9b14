"""Log probabilities for requests that ask for them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw
from baton.request.stream_events import TokenLogprob


def logprobs(
    raw: Tensor, draws: Sequence[Draw], tokens: Mapping[int, int]
) -> dict[int, TokenLogprob]:
    """Return the log probabilities of the rows that request them, from the raw logits."""
    asked = [
        (row, draw.sampling.logprobs)
        for row, draw in enumerate(draws)
        if draw.sampling.logprobs is not None
    ]
    if not asked:
        return {}
    rows = [row for row, _ in asked]
    found = token_logprobs(raw[rows], [tokens[row] for row in rows], [count for _, count in asked])
    return dict(zip(rows, found, strict=True))


def token_logprobs(raw: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprob]:
    """Return the log probabilities of each row's token and of its most likely tokens.

    Args:
        raw: logits [rows, vocab], any float type; taken as float32.
        tokens: one per row.
        counts: number of most likely tokens of each row.
    """
    logs = raw.float().log_softmax(dim=-1)
    chosen = torch.tensor(tokens, device=raw.device).unsqueeze(1)
    own = logs.gather(1, chosen).squeeze(1).tolist()
    values, ids = logs.topk(min(max(counts), raw.shape[1]))
    answer = []
    for count, logprob, ids_of, values_of in zip(
        counts, own, ids.tolist(), values.tolist(), strict=True
    ):
        best = sorted(zip(ids_of, values_of, strict=True), key=lambda pair: (-pair[1], pair[0]))
        answer.append(TokenLogprob(logprob, tuple(best[:count])))
    return answer
