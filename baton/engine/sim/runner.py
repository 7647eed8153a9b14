"""A runner without arithmetic on weights, whose steps take the time given by a cost model.

Its KV is 16 bytes per token: a hash of all full blocks before the token's own, the position and the
token. The next token is a hash of the KV bytes in the sequence's pages, the position, and, above
temperature 0, seed and choice. A wrong byte anywhere therefore changes the following tokens, as it
would in a model. It samples no end-of-sequence token, unless a grammar allows nothing else: outputs
have the requested length. Other sampling parameters have no effect.
"""

import os
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from baton.engine.paged.guided import Words, begin_masks
from baton.engine.paged.planning.plan import ScheduledChunk
from baton.engine.paged.runner import GroupMemory, Runner
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.draw import NotSampled, Sampled
from baton.engine.sim.pages import TOKEN_BYTES, SimPages
from baton.structured.masks import Masks

_KV = struct.Struct("<16sqI")
_SAMPLE = struct.Struct("<16sqQq")
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SimCosts:
    """Costs of a step, in seconds."""

    prefill_token: float
    decode_step: float
    decode_sequence: float
    """Cost per decoding sequence, in addition to the step's."""

    def of(self, prompt_tokens: int, decoding: int) -> float:
        """Return the duration of a step that computes both."""
        decode = self.decode_step + self.decode_sequence * decoding if decoding else 0.0
        return decode + self.prefill_token * prompt_tokens


@dataclass(slots=True)
class _Reading:
    """A hash over a sequence's full blocks, as far as they have been read."""

    digest: "xxhash.xxh3_128"
    blocks: int = 0


class SimRunner(Runner):
    """Pages of 16 bytes per token in anonymous memory."""

    def __init__(
        self,
        pages: int,
        block_tokens: int,
        vocab_tokens: int,
        eos_token_ids: Sequence[int],
        weights: int,
        costs: SimCosts,
        kill_token: int = -1,
        masks: Masks | None = None,
    ) -> None:
        """Allocate memory for the pages, lazily.

        Args:
            pages: number of pages.
            block_tokens: tokens per page.
            vocab_tokens: more than the number of end-of-sequence tokens.
            eos_token_ids: never sampled.
            weights: replaces a model's weights: other numbers yield other tokens.
            costs: duration of steps.
            kill_token: computing this one kills the process; -1: none does.
            masks: of the model's vocabulary; closed with this.
        """
        self._block_tokens = block_tokens
        self._page_bytes = block_tokens * TOKEN_BYTES
        self._pages = SimPages(pages, self._page_bytes)
        self._memory = self._pages.memory
        self._vocab_tokens = vocab_tokens
        self._eos = frozenset(eos_token_ids)
        self._weights = weights
        self._costs = costs
        self._kill_token = kill_token
        self._masks = masks
        self._readings: dict[int, _Reading] = {}

    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...] | NotSampled]:
        began = time.monotonic()
        masks = begin_masks(batch, self._masks)
        prompt = 0
        decoding = 0
        for chunk in batch:
            self._write_kv(chunk)
            count = chunk.end - chunk.start
            if count > 1:
                prompt += count
            else:
                decoding += 1
        # All KV is written before anything is sampled: this exposes pages that two sequences share
        # by mistake.
        allowed = masks.wait()
        sampled = [
            self._sample(chunk, allowed.get(chunk.sequence.id)) if chunk.samples else ()
            for chunk in batch
        ]
        rest = began + self._costs.of(prompt, decoding) - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        return sampled

    def forget(self, sequence_id: int) -> None:
        self._readings.pop(sequence_id, None)

    def memory_of(self, group: int) -> GroupMemory:  # noqa: ARG002
        return self._pages

    def warm_up(self) -> None:
        """Do nothing: nothing is slow the first time."""

    def close(self) -> None:
        self._pages.close()
        self._readings.clear()
        if self._masks is not None:
            self._masks.close()

    def _write_kv(self, chunk: ScheduledChunk) -> None:
        """Compute the KV of the chunk's tokens that are not in place."""
        sequence = chunk.sequence
        size = self._block_tokens
        before = b""
        for position in range(max(chunk.start, sequence.num_computed_tokens), chunk.end):
            if not before or position % size == 0:
                before = self._read_blocks(sequence, position // size).digest()
            token = self._token(sequence, position)
            kv = _KV.pack(before, position, token)
            at = sequence.pages[position // size] * self._page_bytes + position % size * TOKEN_BYTES
            self._memory[at : at + TOKEN_BYTES] = xxhash.xxh3_128_digest(kv)

    def _token(self, sequence: LiveSequence, position: int) -> int:
        """Return the token to compute, unless computing it kills the process."""
        token = sequence.tokens[position]
        if token == self._kill_token:
            os.kill(os.getpid(), signal.SIGKILL)
        return token

    def _read_blocks(self, sequence: LiveSequence, blocks: int) -> "xxhash.xxh3_128":
        """Return the hash of the sequence's first blocks, read from its pages."""
        reading = self._readings.get(sequence.id)
        if reading is None:
            reading = _Reading(xxhash.xxh3_128(seed=self._weights))
            self._readings[sequence.id] = reading
        while reading.blocks < blocks:
            at = sequence.pages[reading.blocks] * self._page_bytes
            reading.digest.update(self._memory[at : at + self._page_bytes])
            reading.blocks += 1
        return reading.digest

    def _read_kv(self, sequence: LiveSequence) -> bytes:
        """Return a hash of all KV from which the sequence's next token is sampled."""
        end = len(sequence.tokens)
        # The last block may be full now, but is read as if it were not: it may still be the last.
        last = (end - 1) // self._block_tokens
        digest = self._read_blocks(sequence, last).copy()
        at = sequence.pages[last] * self._page_bytes
        used = (end - last * self._block_tokens) * TOKEN_BYTES
        digest.update(self._memory[at : at + used])
        return digest.digest()

    def _sample(
        self, chunk: ScheduledChunk, mask: Words | NotSampled | None
    ) -> tuple[Sampled, ...] | NotSampled:
        if isinstance(mask, NotSampled):
            return mask
        sequence = chunk.sequence
        end = len(sequence.tokens)
        state = self._read_kv(sequence)
        sampling = sequence.request.sampling
        avoided = self._eos
        if sampling.min_tokens:
            avoided = avoided | sequence.forbidden_tokens
            if len(avoided) >= self._vocab_tokens:  # no token would be left to sample
                avoided = self._eos
        allowed = sampling.allowed_token_ids
        if mask is not None:
            kept = np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()
            allowed = tuple(token for token in kept if token not in self._eos) or tuple(kept)
        elif allowed:
            allowed = tuple(sorted(set(allowed) - avoided or set(allowed)))  # never empty
        tokens = []
        for choice in sequence.request.choices:
            random = sampling.temperature > 0
            seed = (sampling.seed or 0) & _MASK_64 if random else 0
            key = _SAMPLE.pack(state, end, seed, choice if random else 0)
            token = xxhash.xxh3_64_intdigest(key)
            if allowed:
                tokens.append(Sampled(allowed[token % len(allowed)]))
                continue
            token %= self._vocab_tokens
            while token in avoided:
                token = (token + 1) % self._vocab_tokens
            tokens.append(Sampled(token))
        return tuple(tokens)
