"""What grammars add to a decode step: `python -m bench.structured.steps [--native off]`.

Milliseconds of a decode step of the 292M model with 32 streams at temperature 1, without grammars
and with one each (five schemas in turns, any JSON among them, whose outputs do not end), in turns
in one process, with vocabularies of 4,096 and 131,072. The median of the steps counts, and of the
rounds the shortest.
"""

import argparse
import json
import statistics
import time
from itertools import pairwise
from typing import Any

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SequenceEnded
from baton.engine.factory import create_engine
from baton.grammar import Grammar
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.harness import cli
from bench.harness.checkpoints import random_llama
from bench.harness.table import Table

BATCH = 32
PROMPT = 128
STEPS = 40
_SCHEMAS: list[Any] = [
    {},
    {"type": "string"},
    {"enum": [f"value {i}" for i in range(200)]},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,200}$"}, {"type": "boolean"}]},
]


def _endless(items: Any) -> dict[str, Any]:
    """Return a schema of which no output ends within a measurement."""
    return {"type": "array", "items": items, "minItems": 1000}


def step_ms(engine: Engine, sampling: list[SamplingParams]) -> float:
    """Return the median milliseconds of a decode step of `BATCH` streams."""
    for number in range(BATCH):
        prompt = tuple((number * 131 + i * 7) % 250 for i in range(PROMPT))
        engine.add(SequenceRequest(number, b"bench", prompt, sampling[number % len(sampling)]))
    running: set[int] = set()

    def step() -> None:
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.cached_tokens)
                running.add(event.id)
            elif isinstance(event, SequenceEnded):
                raise SystemExit(f"stream {event.id} ended: {event.reasons} {event.error}")

    while len(running) < BATCH or engine.stats().pending_prompt_tokens:
        step()
    for _ in range(4):
        step()
    marks = [time.perf_counter()]
    for _ in range(STEPS):
        step()
        marks.append(time.perf_counter())
    for number in range(BATCH):
        engine.close(number)
    return statistics.median(after - before for before, after in pairwise(marks)) * 1e3


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    fields: dict[str, Any] = {"temperature": 1.0, "max_tokens": 1024, "ignore_eos": True}
    plain = [SamplingParams(seed=at, **fields) for at in range(BATCH)]
    guided = [
        SamplingParams(
            seed=at,
            grammar=Grammar.of("json_schema", json.dumps(_endless(_SCHEMAS[at % len(_SCHEMAS)]))),
            **fields,
        )
        for at in range(BATCH)
    ]
    table = Table(
        ("vocabulary", "10,"), ("none ms", "9.2f"), ("guided ms", "9.2f"), ("ratio", "6.3f")
    )
    results = []
    for vocab in options.vocab:
        model = random_llama("292M", vocab)
        engine = create_engine(
            EngineSettings(
                model=model, native=options.native, threads=options.threads, kv_bytes=1 << 30
            )
        )
        engine.warm_up()
        times: dict[str, list[float]] = {"none": [], "guided": []}
        for _ in range(options.rounds):
            times["none"].append(step_ms(engine, plain))
            times["guided"].append(step_ms(engine, guided))
        engine.close_engine()
        none, with_grammar = min(times["none"]), min(times["guided"])
        table.row(vocab, none, with_grammar, with_grammar / none)
        results.append({"vocab": vocab, "times_ms": times})
    return results


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 131072])
    parser.add_argument("--native", default="auto", choices=("auto", "off", "required"))
    parser.add_argument("--threads", type=int, default=2, help="default: 2")


if __name__ == "__main__":
    cli.main(measure, __doc__, _arguments, rounds=3)
