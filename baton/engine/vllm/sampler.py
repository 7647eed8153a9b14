"""Baton's sampling within vLLM: a logits processor leaves one token for vLLM's argmax."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from baton.engine.checkpoint.model_config import read_eos_token_ids
from baton.engine.grammars import read_grammars
from baton.engine.native.build import built
from baton.engine.native.kernels import load_mask_logits
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.bad_words import forbidden as forbidden_tokens
from baton.engine.sampling.counts import TokenCounts, has_penalties
from baton.engine.sampling.draw import Draw, Sampled
from baton.engine.sampling.masks import Words, mask_logits
from baton.engine.sampling.sample import sample
from baton.engine.vllm.registry import DRAWN
from baton.sampling import SamplingParams
from baton.structured.grammars import Grammars
from baton.structured.masks import MaskRequest, Masks
from baton.structured.state import GrammarState

ARGUMENT = "baton"
"""Key of `SamplingParams.extra_args` in vLLM."""


class DrawRequest(msgspec.Struct, frozen=True):
    """Parameters of one request's sampling, besides logits and tokens: plain data, so that they can
    be sent to a rank in another process.
    """

    name: str
    sampling: SamplingParams
    choices: tuple[int, ...]
    prompt_tokens: int
    """Number of tokens of the prompt proper: vLLM's also includes output sampled elsewhere."""
    forbidden: tuple[int, ...]
    """Tokens that must not be sampled before `sampling.min_tokens`."""
    grammar_ends: tuple[int, ...]
    """Tokens that end an output where its grammar allows the end; empty without a grammar."""

    @property
    def keeps(self) -> bool:
        """Whether sampling yields more than the token that vLLM selects."""
        return len(self.choices) > 1 or self.sampling.logprobs is not None


def draw_argument(name: str, sequence: LiveSequence) -> dict[str, Any]:
    """Return the `extra_args` by which the processor identifies a request."""
    request = sequence.request
    asked = DrawRequest(
        name=name,
        sampling=request.sampling,
        choices=tuple(request.choices),
        prompt_tokens=sequence.prompt_tokens,
        forbidden=tuple(sorted(sequence.stops)),
        grammar_ends=tuple(sorted(sequence.grammar_ends)),
    )
    return {ARGUMENT: msgspec.msgpack.encode(asked)}


class _Row:
    """One row of the batch.

    Args:
        asked: parameters of the request.
        prompt: in vLLM's sense.
        output: vLLM's own list, which grows.
    """

    def __init__(self, asked: DrawRequest, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.asked = asked
        self._ends = frozenset(asked.grammar_ends)
        self._stops = frozenset(asked.forbidden) | self._ends
        self.state: GrammarState | None = None
        self._tokens = list(prompt)
        self._prompt_tokens = len(prompt)
        self._output = output
        self._counts = TokenCounts(asked.prompt_tokens) if has_penalties(asked.sampling) else None

    @property
    def position(self) -> int:
        """Return the output position of the last sampled token."""
        return len(self._tokens) - self.asked.prompt_tokens

    def catch_up(self) -> None:
        """Read the tokens that vLLM has so far."""
        new = self._output[len(self._tokens) - self._prompt_tokens :]
        # Placeholders of a step in flight are replaced before anything is sampled.
        self._tokens.extend(new[: new.index(-1)] if -1 in new else new)

    def mask_request(self) -> MaskRequest:
        """Return the input of the next mask; only for a row with a grammar."""
        assert self.state is not None
        draw = self._draw(0, None)
        return MaskRequest(
            self.state, self._tokens, self.asked.prompt_tokens, forbidden_tokens(draw)
        )

    def draws(self, mask: Words | None) -> list[Draw]:
        """Return the input of sampling the next token of each choice."""
        if self._counts is not None:
            self._counts.catch_up(self._tokens)
        if self.state is not None and self.state.error:
            # The engine, which also follows the grammar, detects that this token is not allowed.
            mask = ends_alone(self._ends, 0 if mask is None else mask.size)
        return [self._draw(choice, mask) for choice in self.asked.choices]

    def _draw(self, choice: int, mask: Words | None) -> Draw:
        asked = self.asked
        short = self.position < asked.sampling.min_tokens
        ends = self._ends if asked.sampling.ignore_eos else frozenset[int]()
        forbidden = self._stops if short else ends
        tokens, prompt_tokens = self._tokens, asked.prompt_tokens
        return Draw(asked.sampling, choice, tokens, prompt_tokens, forbidden, self._counts, mask)


class BatonSampler(LogitsProcessor):
    """Samples for the rows that are not plainly greedy, and leaves the others unchanged.

    vLLM calls it on the thread of a step, with a row for every request, including those whose
    prompts are not complete: tokens sampled for these are sampled again.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ARG002
        self._rows: dict[int, _Row] = {}
        model = vllm_config.model_config
        self._grammars = shared_grammars(Path(model.model), model.get_vocab_size())
        self._masks = Masks(self._grammars.vocabulary) if self._grammars is not None else None
        found = built() if device.type == "cpu" else None
        self._mask_logits = load_mask_logits(found.path) if found is not None else mask_logits
        self._begun: tuple[list[tuple[_Row, int]], Future[Words]] | None = None
        """Masks that are being computed: their rows, with their positions."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        if batch_update is not None:
            self._update(batch_update)
        self._begun = None
        if self._masks is None:
            return
        for row in self._rows.values():
            row.catch_up()
        guided = [row for row in self._rows.values() if row.state is not None]
        if guided:  # while the step runs
            masks = self._masks.begin([row.mask_request() for row in guided])
            self._begun = [(row, row.position) for row in guided], masks

    def _update(self, batch_update: Any) -> None:
        rows = self._rows
        for index in batch_update.removed:
            rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            rows.pop(index, None)
            argument = (params.extra_args or {}).get(ARGUMENT)
            if argument is not None:
                asked = msgspec.msgpack.decode(argument, type=DrawRequest)
                row = rows[index] = _Row(asked, prompt, output)
                if asked.sampling.grammar is not None and self._grammars is not None:
                    row.state = self._grammars.begin(asked.sampling.grammar)
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
        masks = self._wait_masks()
        for index, row in self._rows.items():
            of_row = row.draws(masks.get(row))
            draws.extend(of_row)
            indexes.extend([index] * len(of_row))
        rows = torch.tensor(indexes, device=logits.device)
        sampled = iter(sample(logits[rows], draws, self._mask_logits))
        tokens: list[int] = []
        for row in self._rows.values():
            of_choices = tuple(next(sampled) for _ in row.asked.choices)
            tokens.append(of_choices[0].token)
            if row.asked.keeps:
                DRAWN.setdefault(row.asked.name, {})[row.position] = of_choices
        at = torch.tensor(list(self._rows), device=logits.device)
        # Greater than any logit, so that the rest of the row need not be filled.
        logits[at, torch.tensor(tokens, device=logits.device)] = torch.inf
        return logits

    def _wait_masks(self) -> Mapping[_Row, Words]:
        """Return the allowed next tokens by row; for rows with a new token, compute them now."""
        for row in self._rows.values():
            row.catch_up()
        guided = [row for row in self._rows.values() if row.state is not None]
        if self._masks is None or not guided:
            return {}
        found: dict[_Row, Words] = {}
        if self._begun is not None:
            rows, masks = self._begun
            for (row, position), mask in zip(rows, masks.result(), strict=True):
                if row.position == position:
                    found[row] = mask
        late = [row for row in guided if row not in found]
        found.update(
            zip(late, self._masks.compute([row.mask_request() for row in late]), strict=True)
        )
        return found


@cache
def shared_grammars(directory: Path, vocab_tokens: int) -> Grammars | None:
    """Return the grammar compiler for a checkpoint, one per process."""
    return read_grammars(directory, vocab_tokens, read_eos_token_ids(directory))


def ends_alone(ends: frozenset[int], words: int) -> Words:
    """Return a mask that allows only these tokens."""
    mask = np.zeros(words, np.uint32)
    for token in ends:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


class LocalDraws:
    """Tokens that the processor of this process kept, as of `sampled.Draws`."""

    def take(self, name: str, position: int) -> tuple[Sampled, ...]:
        """Return the tokens sampled for an output position of a request; drop earlier ones.

        Raises:
            KeyError: none were sampled.
        """
        drawn = DRAWN[name]
        found = drawn[position]
        for earlier in [each for each in drawn if each <= position]:
            del drawn[earlier]
        return found

    def forget(self, name: str) -> None:
        """Drop a request."""
        DRAWN.pop(name, None)
