"""Whether answers in bfloat16 depend on how they are computed.

Half of the answers are greedy, half are drawn with a seed. Each is computed alone, and again in
every way in which a cluster may come to compute it; a row counts the answers that changed.

    python -m bench.engine.determinism [--models tiny,64M,292M] [--answers 120]
        [--deterministic off]
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.harness import ROOT, cli
from bench.harness.checkpoints import random_llama
from bench.harness.table import Table

TOKENS = 32
BLOCK = 16
AT_ONCE = 8
MOVED_AFTER = 12
SHORT, LONG = 40, 300
"""Tokens of prompts."""
Answers = list[tuple[int, ...]]


@dataclass
class Given:
    """A sequence that begins with blocks of another engine."""

    request: SequenceRequest
    source: Engine | None = None
    source_id: int = 0
    blocks: int = 0


def run(engine: Engine, batch: Sequence[Given]) -> Answers:
    """Compute sequences at once; return the tokens of each after those that it began with."""
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
    """Copy the blocks of a sequence into an engine that has admitted it; return their tokens."""
    if given.source is None:
        return 0
    for index in range(given.blocks):
        block = memoryview(bytearray(engine.info.block_bytes))
        given.source.read_blocks(given.source_id, [index], [block])
        engine.write_blocks(given.request.id, [index], block.toreadonly())
    return given.blocks * BLOCK


class Ways:
    """The ways to compute the same answers, on two engines that find nothing in their caches."""

    def __init__(self, model: Path, count: int, deterministic: str) -> None:
        def engine(**fields: object) -> Engine:
            return create_engine(
                EngineSettings.model_validate(
                    {
                        "model": model,
                        "dtype": "bfloat16",
                        "native": "required",
                        "deterministic": deterministic,
                        "kv_bytes": 1024 * 1024 * 1024,
                        **fields,
                    }
                )
            )

        self.here, self.there = engine(), engine()
        self.in_chunks = engine(chunk_tokens=23, decode_chunk_tokens=17)
        draw = random.Random(7)
        vocab = self.here.info.vocab_tokens
        self.requests = [
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

    def alone(self, engine: Engine | None = None) -> Answers:
        return self._each(engine or self.here, [Given(each) for each in self.requests], 1)

    def one_thread(self) -> Answers:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return self.alone()
        finally:
            torch.set_num_threads(threads)

    def at_once(self) -> Answers:
        return self._each(self.here, [Given(each) for each in self.requests], AT_ONCE)

    def cut(self) -> Answers:
        return self._each(self.in_chunks, [Given(each) for each in self.requests], AT_ONCE)

    def split(self, at_once: int, share: float = 1.0) -> Answers:
        """Read prompts at one engine, and go on at the other with this share of the blocks."""
        found: Answers = []
        for at in range(0, len(self.requests), at_once):
            batch = self.requests[at : at + at_once]
            self._forget()
            first = run(self.here, [Given(replace(each, prefill_only=True)) for each in batch])
            moved = [
                Given(
                    replace(each, output=start),
                    self.here,
                    each.id,
                    int(len(each.prompt) // BLOCK * share),
                )
                for each, start in zip(batch, first, strict=True)
            ]
            rest = run(self.there, moved)
            for each in batch:
                self.here.close(each.id)
            found += [a + b for a, b in zip(first, rest, strict=True)]
        return found

    def moved(self, expected: Answers, after: int) -> Answers:
        """Go on at another engine, which reads prompt and output anew."""
        batch = [
            Given(replace(each, output=tokens[:after]))
            for each, tokens in zip(self.requests, expected, strict=True)
        ]
        rest = self._each(self.there, batch, AT_ONCE)
        return [a[:after] + b for a, b in zip(expected, rest, strict=True)]

    def tail_of_one(self) -> Answers:
        """Compute one token of each prompt beside what is found of it."""
        found: Answers = []
        for each in self.requests:
            self._forget()
            whole = len(each.prompt) // BLOCK * BLOCK
            cut = replace(each, prompt=each.prompt[: whole - BLOCK + 1])
            shorter = replace(cut, prompt=cut.prompt[:-1], sampling=SamplingParams(max_tokens=1))
            plain = run(self.there, [Given(cut)])
            run(self.here, [Given(shorter)])
            found.append((*run(self.here, [Given(cut)])[0], *plain[0]))
        return found

    def _each(self, engine: Engine, batch: Sequence[Given], at_once: int) -> Answers:
        found: Answers = []
        for at in range(0, len(batch), at_once):
            self._forget()
            found += run(engine, batch[at : at + at_once])
        return found

    def _forget(self) -> None:
        for engine in (self.here, self.there, self.in_chunks):
            engine.evict_blocks()


def changed(found: Answers, expected: Answers) -> tuple[int, int]:
    """Return how many greedy and how many drawn answers differ."""
    differ = [a != b for a, b in zip(found, expected, strict=True)]
    return sum(differ[::2]), sum(differ[1::2])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in options.models.split(","):
        model = ROOT / "models" / "baton-tiny" if name == "tiny" else random_llama(name)
        ways = Ways(model, options.answers, options.deterministic)
        expected = ways.alone()
        rows: dict[str, Callable[[], Answers]] = {
            "alone again": ways.alone,
            "one thread": ways.one_thread,
            f"{AT_ONCE} at once": ways.at_once,
            "prompt cut by 17 and 23": ways.cut,
            "split": partial(ways.split, 1),
            f"split, {AT_ONCE} at once": partial(ways.split, AT_ONCE),
            "half the KV computed again": partial(ways.split, 1, 0.5),
            "all read by the decode worker": partial(ways.split, AT_ONCE, 0.0),
            f"moved after {MOVED_AFTER}": partial(ways.moved, expected, MOVED_AFTER),
        }
        print(f"{name}: {options.answers} answers of {TOKENS} tokens, {ways.here.info.features}")
        table = Table(("changed", "<31"), ("greedy", "6d"), ("drawn", "6d"))
        counts = {}
        for row, compute in rows.items():
            counts[row] = changed(compute(), expected)
            table.row(row, *counts[row])
        tails = ways.tail_of_one()
        halves = ([each[:TOKENS] for each in tails], [each[TOKENS:] for each in tails])
        counts["one token beside what is found"] = changed(*halves)
        table.row("one token beside what is found", *counts["one token beside what is found"])
        results[name] = counts
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="tiny,64M,292M", help="default: tiny,64M,292M")
    parser.add_argument("--answers", type=int, default=120, help="of each model; default: 120")
    parser.add_argument("--deterministic", default="required", help="required (default) or off")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments)
