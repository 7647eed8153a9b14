"""Tokens and log probabilities in Baton's form, from vLLM's outputs."""

from collections.abc import Iterator
from typing import Any, Protocol

from vllm.v1.engine import EngineCoreOutput

from baton.engine.sampling.draw import Sampled
from baton.engine.vllm.sequences.held_sequence import HeldSequence
from baton.request.stream_events import TokenLogprob


class Draws(Protocol):
    """Tokens that Baton's sampler sampled besides those that vLLM sees, in whichever process."""

    def take(self, name: str, position: int) -> tuple[Sampled, ...]: ...
    def forget(self, name: str) -> None: ...


class SampledReader:
    """Reads outputs of vLLM, one token of each choice at a time."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def read(self, held: HeldSequence, output: EngineCoreOutput) -> Iterator[tuple[Sampled, ...]]:
        """Yield the sampled tokens of each position; the caller appends them in between."""
        sequence = held.sequence
        request = sequence.request
        wants_more = len(request.choices) > 1 or request.sampling.logprobs is not None
        for index, token in enumerate(output.new_token_ids):
            if not wants_more:
                yield (Sampled(token),)
            elif held.keeps_draws:
                yield self._draws.take(held.name, sequence.output_tokens)
            else:
                yield (Sampled(token, _logprob(output.new_logprobs, index, token, request)),)


def scored_prompt(held: HeldSequence, output: EngineCoreOutput) -> list[TokenLogprob]:
    """Return the log probabilities of all prompt tokens but the first; none if vLLM has none.

    vLLM counts output that was sampled elsewhere as prompt: it is omitted.
    """
    tensors, request = output.new_prompt_logprobs_tensors, held.sequence.request
    if tensors is None:
        return []
    tokens = request.prompt[1:]
    ids = tensors.logprob_token_ids[: len(tokens)].tolist()
    values = tensors.logprobs[: len(tokens)].tolist()
    return [
        _entry(token, ids_of, values_of, request.prompt_logprobs or 0)
        for token, ids_of, values_of in zip(tokens, ids, values, strict=True)
    ]


def _logprob(lists: Any, index: int, token: int, request: Any) -> TokenLogprob | None:
    """Return vLLM's own log probability of a token, with the requested number of alternatives."""
    asked = request.sampling.logprobs
    if asked is None or lists is None:
        return None
    ids = [int(each) for each in lists.logprob_token_ids[index]]
    values = [float(each) for each in lists.logprobs[index]]
    return _entry(token, ids, values, asked)


def _entry(token: int, ids: list[int], values: list[float], count: int) -> TokenLogprob:
    """Return vLLM's entry for one token: it comes first, and again if it is among the best."""
    own = values[ids.index(token)]
    best = sorted(zip(ids[1:], values[1:], strict=True), key=lambda pair: (-pair[1], pair[0]))
    return TokenLogprob(own, tuple(best[:count]))
