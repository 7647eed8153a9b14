"""Random traces of other shapes than conversations, for which a policy was not tuned.

    python -m bench.router.studies.shapes NAME [--seed N] > trace.jsonl

writes one in the format of `baton simulate`. They have the known sizes and sharing of such traffic,
but not its every burst.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bench.harness.table import Table
from simulator.config import ClusterConfig
from simulator.policies.catalog import POLICIES, PolicyEntry
from simulator.run import RunOutcome, find_multiple, simulate
from simulator.traces.trace import BLOCK_TOKENS, Trace, parse

COMPARED = ("least-wait", "mooncake", "dynamo-prefill", "preble", "fifo-infinite", "baton-queue")
"""Policies to compare; the best of the others is always included, and Baton's is the last."""


class Line(NamedTuple):
    """A request; seconds from the start, and its blocks."""

    at: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


@dataclass(slots=True)
class Text:
    """A growing text, in blocks; the last block is replaced whenever the text grows."""

    numbers: Iterator[int]
    tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    """Complete blocks."""

    def grow(self, tokens: int) -> None:
        """Add text that is in no other text."""
        self.tokens += tokens
        while (len(self.blocks) + 1) * BLOCK_TOKENS <= self.tokens:
            self.blocks.append(next(self.numbers))

    def chain(self) -> tuple[int, ...]:
        """Return the blocks of the text as it is now."""
        rest = () if self.tokens % BLOCK_TOKENS == 0 else (next(self.numbers),)
        return (*self.blocks, *rest)

    def copy(self) -> "Text":
        """Return a text with this one as its prefix."""
        return Text(self.numbers, self.tokens, list(self.blocks))


def _draws(draw: np.random.Generator, median: float, mean: float, low: int, high: int) -> int:
    """Return a random number of tokens, log-normal."""
    sigma = np.sqrt(2 * np.log(mean / median))
    return int(np.clip(draw.lognormal(np.log(median), sigma), low, high))


def agents(draw: np.random.Generator, numbers: Iterator[int]) -> Iterator[Line]:
    """Agents of 20 kinds with tools and long system prompts; some 15 turns each, seconds apart."""
    kinds = []
    for _ in range(20):
        text = Text(numbers)
        text.grow(_draws(draw, 5_000, 6_500, 1_500, 20_000))
        kinds.append(text)
    popularity = 1 / np.arange(1, 21)
    popularity /= popularity.sum()
    start = 0.0
    for _ in range(400):
        start += draw.exponential(3.0)
        at, text = start, kinds[draw.choice(20, p=popularity)].copy()
        text.grow(_draws(draw, 400, 900, 20, 20_000))
        for _ in range(int(draw.geometric(1 / 15))):
            output = _draws(draw, 110, 190, 5, 4_000)
            yield Line(at, text.tokens, output, text.chain())
            at += 0.03 * output + draw.lognormal(np.log(3.0), 1.2)
            text.grow(output + _draws(draw, 400, 1_000, 20, 30_000))


def conversations(draw: np.random.Generator, numbers: Iterator[int]) -> Iterator[Line]:
    """Short questions that share nothing, with the lengths of Azure's conversations of 2023."""
    yield from _unshared(draw, numbers, 8_000, (1_020, 1_155, 14_050), (129, 211, 1_000))


def code(draw: np.random.Generator, numbers: Iterator[int]) -> Iterator[Line]:
    """Code to complete, in bursts, with nothing shared and short outputs."""
    yield from _unshared(draw, numbers, 6_000, (1_500, 2_050, 7_440), (13, 28, 1_900), burst=4.0)


def _unshared(
    draw: np.random.Generator,
    numbers: Iterator[int],
    requests: int,
    prompts: tuple[float, float, int],
    outputs: tuple[float, float, int],
    burst: float = 1.5,
) -> Iterator[Line]:
    """Yield an hour of requests; each minute has its own rate, which varies more with `burst`."""
    at, mean = 0.0, requests / 3600
    rate, until = mean, 0.0
    for _ in range(requests):
        while at >= until:
            until += 60.0
            rate = mean * draw.gamma(1 / np.log(burst), np.log(burst)) + 0.05 * mean
        at += draw.exponential(1 / rate)
        text = Text(numbers)
        text.grow(_draws(draw, prompts[0], prompts[1], 3, prompts[2]))
        yield Line(
            at, text.tokens, _draws(draw, outputs[0], outputs[1], 1, outputs[2]), text.chain()
        )


def documents(draw: np.random.Generator, numbers: Iterator[int]) -> Iterator[Line]:
    """Questions about long documents, mixed with conversations; two thirds are shared.

    3,993 requests of some 14k tokens with Poisson arrivals, as in Mooncake's synthetic trace.
    """
    asked: list[list[Line]] = []
    requests = 0
    while requests < 3_993:
        kind, text = draw.random(), Text(numbers)
        if kind < 0.62:
            turns = min(40, int(draw.geometric(1 / 3.0)))
            grows, output = (600, 1_100, 50, 12_000), (150, 260, 5, 2_000)
        else:
            long = kind < 0.86
            text.grow(
                _draws(draw, *((26_000, 30_000) if long else (10_000, 15_000)), 3_000, 120_000)
            )
            turns = 1 + min(30, int(draw.geometric(1 / (3.0 if long else 2.2))))
            grows, output = (60, 90, 10, 900), (40, 90, 2, 1_000)
        lines = []
        for _ in range(turns):
            one = text if kind < 0.62 else text.copy()
            one.grow(_draws(draw, *grows))
            wrote = _draws(draw, *output)
            lines.append(Line(0.0, one.tokens, wrote, one.chain()))
            text.grow(wrote if kind < 0.62 else 0)
        asked.append(lines)
        requests += len(lines)
    # Some 60 are active at any time; each sends its next question after those of others.
    at, open_ones = 0.0, asked[:60]
    rest = iter(asked[60:])
    while open_ones:
        pick = int(draw.integers(len(open_ones)))
        at += draw.exponential(0.24)
        yield open_ones[pick].pop(0)._replace(at=at)
        if not open_ones[pick]:
            following = next(rest, None)
            if following is None:
                del open_ones[pick]
            else:
                open_ones[pick] = following


SHAPES: dict[str, Callable[[np.random.Generator, Iterator[int]], Iterator[Line]]] = {
    "agents": agents,
    "conversations": conversations,
    "code": code,
    "documents": documents,
}


def lines(name: str, seed: int) -> Iterator[bytes]:
    """Yield the lines of a trace, in order of time; equal arguments give equal lines."""
    made = SHAPES[name](np.random.default_rng(seed), iter(range(sys.maxsize)))
    for one in sorted(made, key=lambda line: line.at):
        fields = {
            "timestamp": round(1e3 * one.at, 3),
            "input_length": one.prompt_tokens,
            "output_length": one.output_tokens,
            "hash_ids": one.blocks,
        }
        yield json.dumps(fields).encode() + b"\n"


def make(name: str, seed: int) -> Trace:
    """Return a trace of a shape."""
    return parse(lines(name, seed), name=name)


def measure(trace: Trace, clusters: Mapping[str, ClusterConfig]) -> list[dict[str, Any]]:  # noqa: ARG001  # as other studies have it
    """Print and return each policy's load per shape, and the queue's relative to the best."""
    table = Table(
        ("cluster", "<8"),
        ("shape", "<13"),
        ("policy", "<24"),
        ("multiple", "8.2f"),
        ("p90 s", "6.2f"),
        ("of best", "7.3f"),
    )
    found = []
    for (cluster, config), shape in product(clusters.items(), SHAPES):
        made, best = make(shape, 0), 0.0
        for name in COMPARED:
            outcome = _carried(made, config, POLICIES[name])
            multiple = outcome.multiple if outcome is not None else 0.0
            own = name == COMPARED[-1]
            if not own and not POLICIES[name].shared_cache:
                best = max(best, multiple)
            of_best = multiple / best if own and best else ""
            p90 = outcome.p90 if outcome is not None else ""
            table.row(cluster, shape, name, multiple, p90, of_best)
            found.append({"cluster": cluster, "shape": shape, "policy": name, "multiple": multiple})
    return found


def _carried(trace: Trace, config: ClusterConfig, policy: PolicyEntry) -> RunOutcome | None:
    return find_multiple(
        lambda multiple: simulate(trace, config, policy, multiple=multiple, give_up=True)
    )[0]


def main() -> None:
    """Write the trace that the command line names to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for line in lines(options.name, options.seed):
        sys.stdout.buffer.write(line)


if __name__ == "__main__":
    main()
