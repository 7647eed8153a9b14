"""The default runner: runs Hugging Face checkpoints with torch, on CPU and CUDA."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.paged.guided import Late, begin_masks
from baton.engine.paged.planning.plan import ScheduledChunk
from baton.engine.paged.runner import PINNED_SCRATCH_BYTES, Runner, scratch_size
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.counts import TokenCounts, has_penalties
from baton.engine.sampling.draw import Draw, NotSampled, Sampled
from baton.engine.sampling.logprobs import token_logprobs
from baton.engine.sampling.sample import sample
from baton.engine.torch.attention import AttentionStep
from baton.engine.torch.kv.groups import ModelKv
from baton.engine.torch.kv.memory import PoolMemory
from baton.engine.torch.kv.pages import Query
from baton.engine.torch.lora.linear import NO_ADAPTER, Matrices
from baton.engine.torch.model import TransformerModel, last_hidden
from baton.request.stream_events import TokenLogprob
from baton.structured.masks import Masks

_WARM_TOKENS = (1, 64)
_MASK_SHARE, _MASK_SECONDS = 0.1, 0.0001
"""Time to wait for masks after a forward pass: a share of its duration, and minimum seconds."""
_SCORED_LOGITS = 1 << 22
"""Maximum logits held together for a prompt whose tokens are scored: 16 MB."""


class TorchRunner(Runner):
    """Runs a model over its pages, as of `Runner`."""

    def __init__(self, model: TransformerModel, kv: ModelKv, masks: Masks | None = None) -> None:
        self._model = model
        self._masks = masks
        self._kv = kv
        self._memory = [PoolMemory(pool) for pool in kv.pools]
        self._on_cpu = kv.device.type == "cpu"
        self._adapters: dict[str, Matrices] = {}
        self._counts: dict[int, TokenCounts] = {}
        """Counts by sequence, of those that have penalties."""
        self._scored: dict[int, tuple[TokenLogprob, ...]] = {}
        """Log probabilities of a sequence's prompt, by sequence, until they are taken."""

    @torch.inference_mode()
    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...] | NotSampled]:
        began = time.perf_counter()
        masks = begin_masks(batch, self._masks)
        order, steps = self._kv.plan(_queries(batch, len(self._kv.pools)))
        tokens: list[int] = []
        rows: list[int] = []
        sampling: list[int] = []
        scored: list[tuple[LiveSequence, range]] = []
        scored_rows: list[int] = []
        for index in (index for together in order for index in together):
            chunk = batch[index]
            tokens.extend(chunk.sequence.tokens[chunk.start : chunk.end])
            if chunk.sequence.scores_prompt:
                positions = _scored_positions(chunk)
                scored.append((chunk.sequence, positions))
                before = len(tokens) - chunk.end - 1  # a token's logits are its predecessor's
                scored_rows.extend(before + position for position in positions)
            if chunk.samples:
                rows.append(len(tokens) - 1)
                sampling.append(index)
        self._begin_adapters([batch[index] for together in order for index in together])
        hidden = self._forward(tokens, steps, rows + scored_rows)
        drawn: dict[int, list[Sampled]] = {}
        not_drawn: dict[int, NotSampled] = {}
        draws: list[Draw] = []
        rows_of: list[int] = []
        if not (self._on_cpu or masks.done()):
            torch.cuda.synchronize()  # else only the launch would be measured, and masks be late
        passed = time.perf_counter() - began
        allowed = masks.wait_for(max(_MASK_SECONDS, passed * _MASK_SHARE))
        for row, index in enumerate(sampling):
            sequence = batch[index].sequence
            mask = allowed.get(sequence.id)
            if isinstance(mask, Late):
                continue
            if isinstance(mask, NotSampled):
                not_drawn[index] = mask
                continue
            choices = self._draws(sequence, mask)
            draws.extend(choices)
            rows_of.extend([row] * len(choices))
        if draws:
            logits = self._model.weights.head(hidden[: len(rows)])
            if rows_of != list(range(len(rows))):
                logits = logits[torch.tensor(rows_of, device=logits.device)]
            sampled = sample(logits, draws, self._kv.kernels.mask_logits)
            for row, one in zip(rows_of, sampled, strict=True):
                drawn.setdefault(sampling[row], []).append(one)
        self._score(hidden[len(rows) :], scored)
        return [not_drawn.get(at) or tuple(drawn.get(at, ())) for at in range(len(batch))]

    def take_prompt_logprobs(self, sequence_id: int) -> tuple[TokenLogprob, ...]:
        return self._scored.pop(sequence_id, ())

    def forget(self, sequence_id: int) -> None:
        self._counts.pop(sequence_id, None)
        self._scored.pop(sequence_id, None)

    def load_adapter(self, files: AdapterFiles) -> Matrices:
        maps = self._model.weights.maps
        assert maps is not None  # limits of adapters would be None
        norm = self._model.weights.norm
        return maps.load(files, norm.dtype, norm.device)

    def add_adapter(self, key: str, loaded: Matrices) -> None:
        self._adapters[key] = loaded

    def remove_adapter(self, key: str) -> None:
        del self._adapters[key]

    def memory_of(self, group: int) -> PoolMemory:
        return self._memory[group]

    def allocate_scratch(self, block_bytes: int) -> memoryview:
        if self._on_cpu:
            return super().allocate_scratch(block_bytes)
        size = scratch_size(block_bytes, PINNED_SCRATCH_BYTES)
        pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return pinned.numpy().data

    @torch.inference_mode()
    def warm_up(self) -> None:
        if self._on_cpu:
            # The first write to fresh memory takes ten times as long: do it before streams wait.
            for each in self._kv.pools:
                each.pool.zero_()
        for tokens in _WARM_TOKENS:
            pages = [self._kv.scratch_page] * -(-tokens // self._kv.block_tokens)
            _, steps = self._kv.plan([[Query(pages, 0, tokens, 0)] for _ in self._kv.pools])
            self._model.weights.head(self._forward([0] * tokens, steps, [0])).argmax().item()
        if self._kv.kernels.own_threads:
            # The operations that steps leave to torch take microseconds. After each of them,
            # torch's other threads would keep cores from the kernels' for milliseconds, spinning.
            torch.set_num_threads(1)

    def close(self) -> None:
        del self._model, self._kv, self._memory
        if self._masks is not None:
            self._masks.close()

    def _draws(self, sequence: LiveSequence, mask: NDArray[np.uint32] | None) -> list[Draw]:
        """Return the input of sampling the next token of each choice."""
        request = sequence.request
        counts = None
        if has_penalties(request.sampling):
            counts = self._counts.get(sequence.id)
            if counts is None:
                counts = self._counts[sequence.id] = TokenCounts(sequence.prompt_tokens)
            counts.catch_up(sequence.tokens)
        return [
            Draw(
                request.sampling,
                choice,
                sequence.tokens,
                sequence.prompt_tokens,
                sequence.forbidden_tokens,
                counts,
                mask,
            )
            for choice in request.choices
        ]

    def _begin_adapters(self, batch: Sequence[ScheduledChunk]) -> None:
        """Set which adapter each row of a batch has, in the order of its rows."""
        maps = self._model.weights.maps
        if maps is None:
            return
        numbers: dict[str, int] = {}
        owners: list[int] = []
        for chunk in batch:
            key = chunk.sequence.request.adapter
            number = numbers.setdefault(key, len(numbers)) if key else NO_ADAPTER
            owners.extend([number] * (chunk.end - chunk.start))
        maps.begin([self._adapters[key] for key in numbers], owners)

    def _score(self, hidden: Tensor, scored: Sequence[tuple[LiveSequence, range]]) -> None:
        """Store the log probabilities of prompt tokens, whose rows are consecutive."""
        if not scored:
            return
        tokens = [sequence.tokens[at] for sequence, positions in scored for at in positions]
        counts = [
            sequence.request.prompt_logprobs or 0
            for sequence, positions in scored
            for _ in positions
        ]
        size = max(1, _SCORED_LOGITS // self._model.config.vocab_tokens)
        found: list[TokenLogprob] = []
        for at in range(0, len(tokens), size):
            rows = slice(at, at + size)
            logits = self._model.weights.head(hidden[rows])
            found += token_logprobs(logits, tokens[rows], counts[rows])
        at = 0
        for sequence, positions in scored:
            self._scored[sequence.id] = tuple(found[at : at + len(positions)])
            at += len(positions)

    def _forward(
        self, tokens: Sequence[int], steps: Sequence[AttentionStep], rows: Sequence[int]
    ) -> Tensor:
        device = self._kv.device
        return last_hidden(
            self._model,
            self._kv,
            torch.tensor(tokens, device=device),
            steps,
            torch.tensor(rows, dtype=torch.int64, device=device),
        )


def _scored_positions(chunk: ScheduledChunk) -> range:
    """Return the positions of prompt tokens that a chunk's logits score for the first time."""
    sequence = chunk.sequence
    first = max(chunk.start + 1, sequence.scored_tokens)
    return range(first, min(chunk.end + 1, sequence.prompt_tokens))


def _queries(batch: Sequence[ScheduledChunk], groups: int) -> list[list[Query]]:
    """Return the queries of each group."""
    tables = [chunk.sequence.tables for chunk in batch]
    return [
        [
            Query(pages[group], chunk.start, chunk.end, chunk.sequence.num_computed_tokens)
            for chunk, pages in zip(batch, tables, strict=True)
        ]
        for group in range(groups)
    ]
