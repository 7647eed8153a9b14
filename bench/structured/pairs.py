"""Random schemas and seeds: `python -m bench.structured.pairs [--pairs 1000] [--kills 200]`.

Each pair is run three times: on one engine; on two, of which one reads the prompt and samples the
first tokens and the other continues; and on one that receives the output up to a random token, as
after a lost worker. All must have the same tokens. With --kills, a cluster of one prefill and two
decode workers runs pairs while decode workers are killed (SIGKILL), until a number of streams have
continued on another worker: their tokens must be the engine's.
"""

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
from tokenizers import Tokenizer

from baton.client import AsyncClient
from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import EndReason
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.request.grammar import Grammar
from baton.request.stream_events import Delta, Finished
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.harness import cli
from bench.harness.cluster import cluster
from bench.structured.schemas import random_schema

CHOICES = 2
MAX_TOKENS = 320
BATCH = 16
_VOCAB = 1024
_LONG = 48
_AT_ONCE = 24
_SETTLED_SECONDS = 11.0
"""A process that fails three times within 10 s of its start is not restarted."""


@dataclass(frozen=True)
class Pair:
    """A schema and a seed."""

    number: int
    schema: dict[str, Any]
    prompt: tuple[int, ...]

    @property
    def sampling(self) -> SamplingParams:
        grammar = Grammar.of("json_schema", json.dumps(self.schema))
        return SamplingParams(
            temperature=1.0, seed=self.number, max_tokens=MAX_TOKENS, grammar=grammar
        )

    def request(self, number: int, choice: int, output: Sequence[int] = ()) -> SequenceRequest:
        """Return the request to one engine."""
        return SequenceRequest(
            number, b"bench", self.prompt, self.sampling, (choice,), output=tuple(output)
        )


def make_pairs(count: int, seed: int) -> list[Pair]:
    draw = Random(seed)
    return [
        Pair(number, random_schema(draw), tuple(draw.randrange(256) for _ in range(24)))
        for number in range(count)
    ]


def answers(engine: Engine, requests: Sequence[SequenceRequest]) -> list[tuple[list[int], bool]]:
    """Return each request's tokens, and whether it ended by itself."""
    found = []
    for at in range(0, len(requests), BATCH):
        for request, output in zip(
            requests[at : at + BATCH], run_local(engine, requests[at : at + BATCH]), strict=True
        ):
            assert output.ended is not None
            reason = output.ended.reasons[0]
            if reason is EndReason.ERROR:
                raise SystemExit(f"{request.sampling.grammar}: {output.ended.error}")
            tokens = [*request.output, *output.tokens[request.choices[0]]]
            found.append((tokens, reason is EndReason.STOP))
    return found


def in_process(pairs: Sequence[Pair], model: Path, seed: int) -> tuple[dict[str, Any], list[Any]]:
    """Run the pairs in this process; return the counts, and the outputs."""
    draw = Random(seed)
    settings = EngineSettings(model=model, dtype="float64", threads=1, kv_bytes=64 << 20)
    one, prefill, decode = (create_engine(settings) for _ in range(3))
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    numbers = [(pair, choice) for pair in pairs for choice in range(CHOICES)]
    whole = answers(one, [p.request(i, c) for i, (p, c) in enumerate(numbers)])
    counts: Counter[str] = Counter(answers=len(whole), pairs=len(pairs))
    ends = set(one.info.eos_token_ids)
    for (pair, _), (tokens, complete) in zip(numbers, whole, strict=True):
        if not complete:
            continue
        counts["ended_by_themselves"] += 1
        text = tokenizer.decode([each for each in tokens if each not in ends])
        try:
            jsonschema.Draft202012Validator(pair.schema).validate(json.loads(text))
            counts["valid"] += 1
        except (ValueError, jsonschema.ValidationError) as error:
            print(f"INVALID {json.dumps(pair.schema)}: {text!r}: {error}")
    firsts: list[list[int]] = []
    for at, pair in enumerate(pairs):
        asked = SequenceRequest(
            at, b"bench", pair.prompt, pair.sampling, tuple(range(CHOICES)), prefill_only=True
        )
        (output,) = run_local(prefill, [asked])
        firsts += [output.tokens[choice] for choice in range(CHOICES)]
    split, cut, expected_split = [], [], []
    for i, ((pair, choice), (tokens, complete)) in enumerate(zip(numbers, whole, strict=True)):
        if firsts[i] != tokens[:1]:
            print(f"FIRST TOKEN {pair.number}")
        if len(tokens) > 1:
            split.append(pair.request(i, choice, firsts[i]))
            cut.append(pair.request(i, choice, tokens[: draw.randint(1, len(tokens) - 1)]))
            expected_split.append((tokens, complete))
    for name, requests in (("split", split), ("cut", cut)):
        same = [a == b for a, b in zip(answers(decode, requests), expected_split, strict=True)]
        counts[f"{name}_same"], counts[name] = sum(same), len(same)
    for engine in (one, prefill, decode):
        engine.close_engine()
    return dict(counts), whole


async def _stream(client: AsyncClient, model: str, pair: Pair) -> tuple[list[list[int]], int]:
    """Return the tokens of each choice, and the number of decode workers that sampled them."""
    tokens: list[list[int]] = [[] for _ in range(CHOICES)]
    decoders = 0
    sampling = pair.sampling
    assert sampling.grammar is not None
    stream = client.generate(
        list(pair.prompt),
        model=model,
        n=CHOICES,
        temperature=1.0,
        seed=pair.number,
        max_tokens=MAX_TOKENS,
        grammar=sampling.grammar,
    )
    async for event in stream:
        match event:
            case Delta():
                tokens[event.choice] += event.token_ids
            case Finished():
                decoders = sum(step.name == "decode" for step in event.steps)
    return tokens, decoders


async def _kill_one(draw: Random, pids: Mapping[str, int]) -> None:
    """Kill a decode worker while the streams run."""
    await asyncio.sleep(draw.uniform(0.1, 0.8))
    name = draw.choice(sorted(pids))
    with suppress(ProcessLookupError):  # it was gone already: another one is killed next
        os.kill(pids[name], signal.SIGKILL)


def long_pairs(count: int, seed: int) -> list[Pair]:
    """Return pairs whose outputs take a second or more."""
    draw = Random(seed)
    made = []
    for number in range(count):
        items = {"anyOf": [random_schema(draw, 1), {"type": "string", "minLength": 12}]}
        schema = {"type": "array", "items": items, "minItems": 40}
        made.append(Pair(number, schema, tuple(draw.randrange(256) for _ in range(24))))
    return made


async def killed(model: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run long pairs while decode workers are killed."""
    draw = Random(seed)
    pairs = long_pairs(_LONG, seed)
    engine = create_engine(
        EngineSettings(model=model, dtype="float64", threads=1, kv_bytes=64 << 20)
    )
    requests = [
        pair.request(CHOICES * pair.number + choice, choice)
        for pair in pairs
        for choice in range(CHOICES)
    ]
    expected = answers(engine, requests)
    engine.close_engine()
    settings = {"BATON_ENGINE_DTYPE": "float64", "BATON_ENGINE_THREADS": "1"}
    settings["BATON_TELEMETRY_LOG_LEVEL"] = "error"
    counts: Counter[str] = Counter()
    seen: dict[int, float] = {}
    arguments = ("--model", str(model), "--prefill", "1", "--decode", "2")
    async with (
        cluster(*arguments, settings=settings) as running,
        AsyncClient(running.grpc) as client,
    ):
        while counts["moved"] < kills:
            pids = running.pids()
            now = time.monotonic()
            seen = {pid: seen.get(pid, now) for name, pid in pids.items() if "decode" in name}
            if len(seen) < 2 or now - min(seen.values()) < _SETTLED_SECONDS:
                await asyncio.sleep(0.2)
                continue
            pids = {name: pid for name, pid in pids.items() if pid in seen}
            pids = {name: pid for name, pid in pids.items() if now - seen[pid] > _SETTLED_SECONDS}
            chosen = draw.sample(pairs, _AT_ONCE)
            made, _ = await asyncio.gather(
                asyncio.gather(*(_stream(client, running.model, pair) for pair in chosen)),
                _kill_one(draw, pids),
            )
            counts["kills"] += 1
            for pair, (tokens, decoders) in zip(chosen, made, strict=True):
                right = [expected[2 * pair.number + choice][0] for choice in range(CHOICES)]
                counts["streams"] += 1
                counts["same"] += tokens == right
                if decoders > CHOICES:
                    counts["moved"] += 1
                    counts["moved_same"] += tokens == right
            print(dict(counts), flush=True)
    return dict(counts)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    pairs = make_pairs(options.pairs, options.seed)
    with tempfile.TemporaryDirectory() as directory:
        model = write_random_checkpoint(Path(directory) / "tiny", vocab=_VOCAB)
        counts, _ = in_process(pairs, model, options.seed)
        share = counts["ended_by_themselves"] / counts["answers"]
        print(f"{counts}; {share:.1%} ended by themselves", flush=True)
        results: dict[str, Any] = {"in_process": counts}
        if options.kills:
            results["killed"] = await killed(model, options.kills, options.seed)
            print(results["killed"], flush=True)
    whole = counts["split"] == counts["split_same"] and counts["cut"] == counts["cut_same"]
    if counts.get("valid", 0) != counts["ended_by_themselves"] or not whole:
        raise SystemExit("not kept: see above")
    return results


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=1000, help="default: 1000")
    parser.add_argument("--kills", type=int, default=0, help="streams to move; default: none")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")


if __name__ == "__main__":
    cli.main(measure, __doc__, _arguments, smallest="--pairs 2")
