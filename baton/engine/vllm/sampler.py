"""Baton's draw within vLLM: a logits processor that leaves one token, which vLLM's argmax finds."""

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.counts import TokenCounts, has_penalties
from baton.engine.sampling.draw import Draw, Sampled
from baton.engine.sampling.sample import sample
from baton.engine.vllm.registry import DRAWN
from baton.sampling import SamplingParams

ARGUMENT = "baton"
"""Key of `SamplingParams.extra_args` in vLLM."""


class DrawRequest(msgspec.Struct, frozen=True):
    """What decides the draws of one request, besides logits and tokens: plain data, so that it
    reaches a rank in another process."""

    name: str
    sampling: SamplingParams
    choices: tuple[int, ...]
    prompt_tokens: int
    """Tokens of the prompt proper: to vLLM, output that was sampled elsewhere is prompt too."""
    forbidden: tuple[int, ...]
    """Tokens that may not be drawn before `sampling.min_tokens`."""

    @property
    def keeps(self) -> bool:
        """Whether more comes of a draw than the token that vLLM finds."""
        return len(self.choices) > 1 or self.sampling.logprobs is not None


def draw_argument(name: str, sequence: LiveSequence) -> dict[str, Any]:
    """Return the `extra_args` by which the processor knows a request."""
    request = sequence.request
    asked = DrawRequest(
        name=name,
        sampling=request.sampling,
        choices=tuple(request.choices),
        prompt_tokens=sequence.prompt_tokens,
        forbidden=tuple(sorted(sequence.stops)),
    )
    return {ARGUMENT: msgspec.msgpack.encode(asked)}


class _Row:
    """One row of the batch.

    Args:
        asked: by the request.
        prompt: in vLLM's sense.
        output: vLLM's own list, which grows.
    """

    def __init__(self, asked: DrawRequest, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.asked = asked
        self._forbidden = frozenset(asked.forbidden)
        self._tokens = list(prompt)
        self._prompt_tokens = len(prompt)
        self._output = output
        self._counts = TokenCounts(asked.prompt_tokens) if has_penalties(asked.sampling) else None

    @property
    def position(self) -> int:
        """Output position of the token that was drawn last."""
        return len(self._tokens) - self.asked.prompt_tokens

    def draws(self) -> list[Draw]:
        """Return what decides the next token of each choice."""
        asked = self.asked
        self._tokens.extend(self._output[len(self._tokens) - self._prompt_tokens :])
        if self._counts is not None:
            self._counts.catch_up(self._tokens)
        short = self.position < asked.sampling.min_tokens
        forbidden: frozenset[int] = self._forbidden if short else frozenset()
        return [
            Draw(asked.sampling, choice, self._tokens, asked.prompt_tokens, forbidden, self._counts)
            for choice in asked.choices
        ]


class BatonSampler(LogitsProcessor):
    """Draws for the rows that are not plainly greedy, and leaves the others alone.

    vLLM calls it on the thread of a step, with a row for every request, also for prompts that are
    not through: what is drawn for these is drawn again.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ARG002
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if batch_update is None:
            return
        rows = self._rows
        for index in batch_update.removed:
            rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            rows.pop(index, None)
            argument = (params.extra_args or {}).get(ARGUMENT)
            if argument is not None:
                asked = msgspec.msgpack.decode(argument, type=DrawRequest)
                rows[index] = _Row(asked, prompt, output)
        for source, target, how in batch_update.moved:
            moved, other = rows.pop(source, None), rows.pop(target, None)
            if moved is not None:
                rows[target] = moved
            if other is not None and how is MoveDirectionality.SWAP:
                rows[source] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._rows:
            return logits
        draws: list[Draw] = []
        indexes: list[int] = []
        for index, row in self._rows.items():
            of_row = row.draws()
            draws.extend(of_row)
            indexes.extend([index] * len(of_row))
        rows = torch.tensor(indexes, device=logits.device)
        sampled = iter(sample(logits[rows], draws))
        tokens: list[int] = []
        for row in self._rows.values():
            of_choices = tuple(next(sampled) for _ in row.asked.choices)
            tokens.append(of_choices[0].token)
            if row.asked.keeps:
                DRAWN.setdefault(row.asked.name, {})[row.position] = of_choices
        at = torch.tensor(list(self._rows), device=logits.device)
        # Greater than any logit, so that the row itself need not be filled.
        logits[at, torch.tensor(tokens, device=logits.device)] = torch.inf
        return logits


class LocalDraws:
    """What the processor of this process kept, as of `sampled.Draws`."""

    def take(self, name: str, position: int) -> tuple[Sampled, ...]:
        """Return what was drawn of a request for an output position; forget what came before.

        Raises:
            KeyError: nothing was drawn.
        """
        drawn = DRAWN[name]
        found = drawn[position]
        for earlier in [each for each in drawn if each <= position]:
            del drawn[earlier]
        return found

    def forget(self, name: str) -> None:
        """Forget a request."""
        DRAWN.pop(name, None)
