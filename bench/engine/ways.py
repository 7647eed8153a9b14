"""The ways in which a cluster may compute the same outputs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings

TOKENS = 32
BLOCK = 16
AT_ONCE = 8
MOVED_AFTER = 12
SHORT, LONG = 40, 300
"""Tokens of prompts."""
MOST_CUT = 64
"""The most tokens of a step when prompts are split; the least is one."""
Answers = Sequence[tuple[int, ...]]


@dataclass
class Given:
    """A sequence that starts with blocks of another engine."""

    request: SequenceRequest
    source: Engine | None = None
    source_id: int = 0
    blocks: int = 0


def run(engine: Engine, batch: Sequence[Given]) -> Answers:
    """Compute sequences at once; return the new tokens of each."""
    tokens: dict[int, list[int]] = {}
    given = {each.request.id: each for each in batch}
    for each in batch:
        engine.add(each.request)
        tokens[each.request.id] = []
    left = len(batch)
    while left:
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, max(event.cached_tokens, copied(engine, given[event.id])))
            elif isinstance(event, SampledTokens):
                tokens[event.id].extend(event.token_ids)
            elif isinstance(event, SequenceEnded):
                left -= 1
                if not given[event.id].request.prefill_only:
                    engine.close(event.id)
    return [tuple(each) for each in tokens.values()]


def copied(engine: Engine, given: Given) -> int:
    """Copy blocks of a sequence into an engine that has admitted it; return their tokens."""
    if given.source is None:
        return 0
    for index in range(given.blocks):
        block = memoryview(bytearray(engine.info.block_bytes))
        given.source.read_blocks(given.source_id, [index], [block])
        engine.write_blocks(given.request.id, [index], block.toreadonly())
    return given.blocks * BLOCK


def requests(count: int, vocab: int) -> list[SequenceRequest]:
    """Return requests with random prompts: every other one greedy, the rest sampled with a seed."""
    draw = random.Random(7)
    return [
        SequenceRequest(
            id=i,
            root=b"root",
            prompt=tuple(draw.randrange(vocab) for _ in range(draw.randrange(SHORT, LONG))),
            sampling=SamplingParams(
                seed=i, temperature=i % 2 * 1.0, max_tokens=TOKENS, ignore_eos=True
            ),
        )
        for i in range(count)
    ]


def _before_last(request: SequenceRequest) -> SequenceRequest:
    """Return a request that computes the KV of all tokens of a prompt but the last."""
    return replace(request, prompt=request.prompt[:-1], sampling=SamplingParams(max_tokens=1))


class Ways:
    """The ways, on one thread, with two engines that find nothing in their caches.

    Args:
        model: a checkpoint's directory.
        deterministic: as in the engine's settings, as is `device`.
    """

    def __init__(self, model: Path, deterministic: str, device: str = "cpu") -> None:
        self._model = model
        self._deterministic = deterministic
        self._device = device
        self.here, self._there = self._engine(), self._engine()

    def rows(self) -> dict[str, Callable[[Sequence[SequenceRequest], Answers], Answers]]:
        """Return the ways by name: functions from requests and reference outputs to outputs."""
        return {
            "alone again": self.alone,
            f"{AT_ONCE} at once": self._at_once,
            f"{AT_ONCE} at once, two threads": self._two_threads,
            "prompt cut anywhere": self._cut,
            "split": partial(self._split, at_once=1),
            f"split, {AT_ONCE} at once": partial(self._split, at_once=AT_ONCE),
            "half the KV computed again": partial(self._split, at_once=AT_ONCE, share=0.5),
            "all read by the decode worker": partial(self._split, at_once=AT_ONCE, share=0.0),
            f"moved after {MOVED_AFTER}": self._moved,
            "one token beside what is found": self._tail_of_one,
        }

    def alone(self, batch: Sequence[SequenceRequest], _: Answers = ()) -> Answers:
        """Compute one after the other."""
        return self._each(self.here, [Given(each) for each in batch], 1)

    def _engine(self, **fields: object) -> Engine:
        return create_engine(
            EngineSettings.model_validate(
                {
                    "model": self._model,
                    "dtype": "bfloat16",
                    "device": self._device,
                    "native": "required" if self._device == "cpu" else "off",
                    "threads": 1,
                    "deterministic": self._deterministic,
                    "kv_bytes": 1024 * 1024 * 1024,
                    **fields,
                }
            )
        )

    def _at_once(self, batch: Sequence[SequenceRequest], _: Answers) -> Answers:
        return self._each(self.here, [Given(each) for each in batch], AT_ONCE)

    def _two_threads(self, batch: Sequence[SequenceRequest], _: Answers) -> Answers:
        found = self._apart(batch, threads=2)
        torch.set_num_threads(1)  # of the process
        return found

    def _cut(self, batch: Sequence[SequenceRequest], _: Answers) -> Answers:
        """Split prompts differently per batch, and where other sequences leave space."""
        draw = random.Random(batch[0].id)
        return self._apart(
            batch,
            chunk_tokens=draw.randint(1, MOST_CUT),
            decode_chunk_tokens=draw.randint(1, MOST_CUT),
        )

    def _apart(self, batch: Sequence[SequenceRequest], **fields: object) -> Answers:
        """Compute all at once, with an engine of other settings."""
        engine = self._engine(**fields)
        found = run(engine, [Given(each) for each in batch])
        engine.close_engine()
        return found

    def _split(
        self, batch: Sequence[SequenceRequest], _: Answers, *, at_once: int, share: float = 1.0
    ) -> Answers:
        """Read prompts on one engine, and continue on the other with this share of the blocks."""
        found: list[tuple[int, ...]] = []
        for at in range(0, len(batch), at_once):
            some = batch[at : at + at_once]
            self._forget()
            first = run(self.here, [Given(replace(each, prefill_only=True)) for each in some])
            moved = [
                Given(
                    replace(each, output=start),
                    self.here,
                    each.id,
                    int(len(each.prompt) // BLOCK * share),
                )
                for each, start in zip(some, first, strict=True)
            ]
            rest = run(self._there, moved)
            for each in some:
                self.here.close(each.id)
            found += [a + b for a, b in zip(first, rest, strict=True)]
        return found

    def _moved(self, batch: Sequence[SequenceRequest], expected: Answers) -> Answers:
        """Continue on another engine, which recomputes prompt and output."""
        moved = [
            Given(replace(each, output=tokens[:MOVED_AFTER]))
            for each, tokens in zip(batch, expected, strict=True)
        ]
        rest = self._each(self._there, moved, AT_ONCE)
        return [a[:MOVED_AFTER] + b for a, b in zip(expected, rest, strict=True)]

    def _tail_of_one(self, batch: Sequence[SequenceRequest], expected: Answers) -> Answers:
        """Compute one token of a prompt after whole cached blocks."""
        self._forget()
        cut = [
            replace(each, prompt=each.prompt[: (len(each.prompt) - 1) // BLOCK * BLOCK + 1])
            for each in batch
        ]
        run(self.here, [Given(_before_last(each)) for each in cut])
        found = run(self.here, [Given(each) for each in cut])
        whole = run(self._there, [Given(each) for each in cut])
        # The outputs are for other prompts than the expected ones.
        return [
            tokens if a == b else () for a, b, tokens in zip(found, whole, expected, strict=True)
        ]

    def _each(self, engine: Engine, batch: Sequence[Given], at_once: int) -> Answers:
        found: list[tuple[int, ...]] = []
        for at in range(0, len(batch), at_once):
            self._forget()
            found += run(engine, batch[at : at + at_once])
        return found

    def _forget(self) -> None:
        for engine in (self.here, self._there):
            engine.evict_blocks()
