"""Cost of hostile grammars: `python -m bench.structured.hostile`.

Sixty grammars that are too deep, too large or too ambiguous (grammars.py). Each is compiled as a
worker does, and unless it is rejected, 64 tokens are sampled with it from random weights.
Compiling, and the longest gap between two of its tokens, must not exceed 250 ms.

Four streams without a grammar decode on the same engine. Windows with hostile grammars and equally
long windows with a plain stream of the same length, in turns, are compared by the time between
tokens of the four: the median over the windows of the ratios of p50 and of p99. A second ratio
compares plain windows with each other, as the noise. A third is for windows in which another
process compiles the grammars on another core: the effect of shared memory and caches, independent
of the worker. On a machine with other load, the second pair of lines is more reliable: the same
without the time for which the engine's thread was ready to run and had no core, as Linux counts it.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.process.allocator import keep_freed_memory
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams, check
from baton.settings import EngineSettings
from baton.structured.grammars import Grammars
from bench.harness import ROOT, cli
from bench.harness.table import Table
from bench.structured.grammars import HOSTILE

MAX_SECONDS = 0.25
STREAMS = 4
TOKENS = 64
WINDOWS = 12
"""Windows in which the grammars are tried, per round."""


class Background:
    """An engine with plain streams."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gaps: list[tuple[float, float]] = []
        """Seconds between tokens, and the same without the time spent waiting for a core."""
        self._last: dict[int, tuple[float, float]] = {}
        self._next = 0
        self.ended: dict[int, SequenceEnded] = {}
        self.tokens: dict[int, tuple[int, float]] = {}
        """Of unmeasured streams: the number of tokens, and the longest gap between two."""

    def fill(self) -> None:
        """Keep the streams running."""
        while len(self._last.keys() - self.tokens.keys()) < STREAMS:
            self.add(SamplingParams(seed=self._next, max_tokens=2000, ignore_eos=True))

    def add(self, sampling: SamplingParams, *, apart: bool = False) -> int:
        number = self._next
        self._next += 1
        self.engine.add(SequenceRequest(number, b"bench", (number % 250, 1, 2, 3), sampling))
        self._last[number] = time.perf_counter(), core_wait()
        if apart:
            self.tokens[number] = 0, 0.0
        return number

    def step(self) -> None:
        events = self.engine.step()
        now, waited = time.perf_counter(), core_wait()
        for event in events:
            match event:
                case Admitted():
                    self.engine.start(event.id, event.cached_tokens)
                case SampledTokens():
                    last, before = self._last[event.id]
                    gap = now - last
                    self._last[event.id] = now, waited
                    if event.id in self.tokens:
                        count, longest = self.tokens[event.id]
                        self.tokens[event.id] = count + 1, max(longest, gap)
                    elif event.position:
                        self.gaps.append((gap, gap - (waited - before)))
                case SequenceEnded():
                    self._last.pop(event.id, None)
                    self.ended[event.id] = event
                    self.engine.close(event.id)
        self.fill()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    keep_freed_memory()  # as every process of a cluster does
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        model = write_random_checkpoint(
            Path(directory) / "tiny", vocab=options.vocab, layers=4, hidden=256
        )
        engine = create_engine(EngineSettings(model=model, threads=1, kv_bytes=256 << 20))
        made = Background(engine)
        made.fill()
        for _ in range(200):
            made.step()
        table = Table(
            ("kind", "<11"),
            ("grammar", "<32"),
            ("compile ms", "10.1f"),
            ("worst gap", "10.1f"),
            ("outcome", "<60"),
        )
        results: dict[tuple[str, str], tuple[float, float, str]] = {}
        windows: dict[str, list[list[tuple[float, float]]]] = {
            "hostile": [],
            "before": [],
            "after": [],
            "elsewhere": [],
        }
        tried = HOSTILE[:: options.every]
        size = -(-len(tried) // WINDOWS)
        command = [sys.executable, "-m", "bench.structured.compiling", str(model)]
        elsewhere = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
        stack.callback(elsewhere.kill)
        assert elsewhere.stdout is not None
        elsewhere.stdout.readline()
        elsewhere.send_signal(signal.SIGSTOP)
        for turn in range(options.rounds):
            assert engine.grammars is not None
            engine.grammars.close()  # each round compiles again
            engine.grammars = Grammars(engine.grammars.vocabulary)
            for at in range(0, len(tried), size):
                made.gaps = []
                began = time.perf_counter()
                for kind, text in tried[at : at + size]:
                    row = _play(made, kind, text)
                    best = results.get((kind, text), row)
                    results[kind, text] = (min(best[0], row[0]), min(best[1], row[1]), row[2])
                    if turn == options.rounds - 1:
                        shown = text[:32].replace("\n", " ")
                        table.row(kind, shown, *results[kind, text])
                passed = time.perf_counter() - began
                windows["hostile"].append(made.gaps)
                for name in ("before", "after", "elsewhere"):
                    made.gaps = []
                    if name == "elsewhere":
                        elsewhere.send_signal(signal.SIGCONT)
                    began = time.perf_counter()
                    while time.perf_counter() - began < passed:
                        _beside(made)
                    windows[name].append(made.gaps)
                elsewhere.send_signal(signal.SIGSTOP)
        engine.close_engine()
    late = [
        {"kind": kind, "text": text[:64], "compile_ms": row[0], "worst_ms": row[1]}
        for (kind, text), row in results.items()
        if max(row[0], row[1]) > MAX_SECONDS * 1e3
    ]
    print(f"{len(tried)} grammars, {len(late)} above {MAX_SECONDS * 1e3:.0f} ms")
    for one in late:
        print(f"above: {one}")
    shares = Table(
        ("between tokens", "<14"),
        ("none ms", "9.2f"),
        ("ratio", "6.2f"),
        ("elsewhere", "9.2f"),
        ("noise", "6.2f"),
    )
    found: dict[str, Any] = {"late": late}
    for name, of, share in (
        ("p50", 0, 0.5),
        ("p99", 0, 0.99),
        ("p50 on a core", 1, 0.5),
        ("p99 on a core", 1, 0.99),
    ):
        hostile, before, after, other = (
            [_quantile(gaps, of, share) * 1e3 for gaps in windows[kind]] for kind in windows
        )
        none = statistics.median(before + after)
        ratio, apart = (
            statistics.median(
                each * 2 / (b + a) for each, b, a in zip(some, before, after, strict=True)
            )
            for some in (hostile, other)
        )
        noise = statistics.median(a / b for b, a in zip(before, after, strict=True))
        shares.row(name, none, ratio, apart, noise)
        found[name] = {"none_ms": none, "ratio": ratio, "elsewhere": apart, "noise": noise}
    return found


def _beside(made: Background) -> None:
    """Run a plain stream of `TOKENS` next to the others."""
    number = made.add(SamplingParams(seed=1, max_tokens=TOKENS, ignore_eos=True), apart=True)
    while number not in made.ended:
        made.step()


def _play(made: Background, kind: str, text: str) -> tuple[float, float, str]:
    """Compile a grammar and sample with it; return milliseconds of both, and the result."""
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
    number = made.add(sampling, apart=True)
    while number not in made.ended:
        made.step()
    ended = made.ended[number]
    tokens, worst = made.tokens[number]
    outcome = f"{tokens} tokens, {ended.reasons[0].value} {ended.error}"
    return compiled, worst * 1e3, outcome[:60]


def core_wait() -> float:
    """Return the seconds for which the calling thread was ready to run and had no core.

    0 if Linux does not count them.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except FileNotFoundError:
        return 0.0


def _quantile(gaps: list[tuple[float, float]], of: int, share: float) -> float:
    return sorted(gap[of] for gap in gaps)[int(len(gaps) * share)]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab", type=int, default=4096, help="vocabulary of the model; default: 4096"
    )
    help_ = "try every n-th grammar; default: 1"
    parser.add_argument("--every", type=int, default=1, help=help_)


if __name__ == "__main__":
    cli.main(measure, __doc__, _arguments, rounds=3, smallest="--rounds 1 --every 24")
