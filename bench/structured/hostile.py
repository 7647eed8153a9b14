"""What hostile grammars cost: `python -m bench.structured.hostile`.

Sixty grammars that are too deep, too large or too ambiguous (grammars.py). Each is compiled as a
frontend does it, and where that does not refuse it, 64 tokens are drawn by it from random weights:
each of compiling and the longest step is to take 250 ms at most. Meanwhile four streams without
a grammar decode on the same engine: their 99th percentile of time between tokens is compared with
that of the same time with nothing hostile.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.grammar import Grammar
from baton.sampling import SamplingParams, check
from baton.settings import EngineSettings
from bench.harness import cli
from bench.harness.table import Table
from bench.structured.grammars import HOSTILE

MAX_SECONDS = 0.25
STREAMS = 4
TOKENS = 64


class Background:
    """An engine with streams that nothing is asked of but tokens."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gaps: list[float] = []
        self._last: dict[int, float] = {}
        self._next = 0
        self.ended: dict[int, SequenceEnded] = {}
        self.tokens: dict[int, int] = {}

    def fill(self) -> None:
        """Keep the streams running."""
        while len(self._last) < STREAMS:
            self.add(SamplingParams(seed=self._next, max_tokens=2000, ignore_eos=True))

    def add(self, sampling: SamplingParams, *, guided: bool = False) -> int:
        number = self._next
        self._next += 1
        self.engine.add(SequenceRequest(number, b"bench", (number % 250, 1, 2, 3), sampling))
        if guided:
            self.tokens[number] = 0
        else:
            self._last[number] = time.perf_counter()
        return number

    def step(self) -> None:
        for event in self.engine.step():
            match event:
                case Admitted():
                    self.engine.start(event.id, event.cached_tokens)
                case SampledTokens():
                    if event.id in self.tokens:
                        self.tokens[event.id] += 1
                    else:
                        now = time.perf_counter()
                        if event.position:
                            self.gaps.append(now - self._last[event.id])
                        self._last[event.id] = now
                case SequenceEnded():
                    self._last.pop(event.id, None)
                    self.ended[event.id] = event
                    self.engine.close(event.id)
        self.fill()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    del options
    with tempfile.TemporaryDirectory() as directory:
        model = write_random_checkpoint(Path(directory) / "tiny", vocab=4096, layers=4, hidden=256)
        engine = create_engine(EngineSettings(model=model, threads=1, kv_bytes=256 << 20))
        made = Background(engine)
        made.fill()
        for _ in range(200):
            made.step()
        made.gaps.clear()
        for _ in range(1500):
            made.step()
        quiet, made.gaps = made.gaps, []
        table = Table(
            ("kind", "<11"),
            ("grammar", "<32"),
            ("compile ms", "10.1f"),
            ("worst step", "10.1f"),
            ("outcome", "<60"),
        )
        results = []
        for kind, text in HOSTILE:
            row = _play(made, kind, text)
            table.row(kind, text[:32].replace("\n", " "), *row)
            results.append((kind, text[:64], *row))
        engine.close_engine()
    found = {"quiet_p99_ms": _p99(quiet), "hostile_p99_ms": _p99(made.gaps)}
    late = [row for row in results if max(row[2], row[3]) > MAX_SECONDS * 1e3]
    found["ratio"] = found["hostile_p99_ms"] / found["quiet_p99_ms"]
    above = f"{len(late)} above {MAX_SECONDS * 1e3:.0f} ms"
    print(f"{len(HOSTILE)} grammars, {above}; other streams: {found}")
    return {"grammars": results, **found}


def _play(made: Background, kind: str, text: str) -> tuple[float, float, str]:
    """Compile a grammar and draw by it; return milliseconds of both, and what came of it."""
    engine = made.engine
    grammars = engine.grammars
    assert grammars is not None
    began = time.perf_counter()
    try:
        grammar = Grammar.of(kind, text)
        sampling = SamplingParams(grammar=grammar, seed=1, max_tokens=TOKENS)
        check(sampling)
        submitted = grammars.submit(grammar)
        while not submitted.done():  # on its own thread, while the others decode
            made.step()
        submitted.result()
    except ValueError as error:
        return (time.perf_counter() - began) * 1e3, 0.0, f"refused: {error}"[:60]
    compiled = (time.perf_counter() - began) * 1e3
    number = made.add(sampling, guided=True)
    worst = 0.0
    while number not in made.ended:
        began = time.perf_counter()
        made.step()
        worst = max(worst, time.perf_counter() - began)
    ended = made.ended[number]
    outcome = f"{made.tokens[number]} tokens, {ended.reasons[0].value} {ended.error}"
    return compiled, worst * 1e3, outcome[:60]


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100] * 1e3


if __name__ == "__main__":
    cli.main(measure, __doc__)
