"""Tool calls whose decode worker is killed while writing them: `python -m bench.structured.calls`.

A cluster of one prefill and two decode workers of Baton Tiny streams required tool calls, each with
its own seed: first undisturbed, then while decode workers that are writing calls are killed
(SIGKILL), until a number of calls have continued on another worker. Each must be one call whose
arguments match its schema, with the same tokens as the undisturbed one.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import jsonschema

from baton.client import AsyncClient
from baton.client.tools import Tool
from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    ChoiceFinished,
    Delta,
    Finished,
    FinishReason,
)
from bench.harness import cli
from bench.harness.cluster import Cluster, cluster

NOTES = 8
"""The fewest notes of a call; each has some 25 tokens."""
MAX_TOKENS = 1000


def schema(notes: int) -> dict[str, Any]:
    """Return the schema of arguments with at least this many notes."""
    return {
        "type": "object",
        "properties": {
            "city": {"enum": ["Rome", "Paris", "Oslo"]},
            "notes": {
                "type": "array",
                "items": {"type": "string", "minLength": 12, "maxLength": 24},
                "minItems": notes,
                "maxItems": notes + notes // 2,
            },
        },
        "required": ["city", "notes"],
        "additionalProperties": False,
    }


class Call:
    """One streamed output that is a call.

    Args:
        seed: seed of its sampling.
        notes: the fewest notes in its arguments.
    """

    def __init__(self, seed: int, notes: int = NOTES) -> None:
        self.seed = seed
        self._schema = schema(notes)
        self.tokens: list[int] = []
        self.arguments: list[str] = []
        self.open = False
        """Whether its writing has started and not ended."""
        self.begun = self.ended = self.decoders = 0
        self.reason: FinishReason | None = None

    async def stream(self, client: AsyncClient, model: str) -> None:
        """Send the request, and record the response."""
        tool: Tool = {"name": "note", "description": "Note.", "parameters": self._schema}
        events = client.chat(
            "What is the weather?",
            model=model,
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1.0,
            seed=self.seed,
            max_tokens=MAX_TOKENS,
        )
        async for event in events:
            match event:
                case Delta():
                    self.tokens += event.token_ids
                    self._note(event)
                case ChoiceFinished():
                    self.reason = event.reason
                case Finished():
                    self.decoders = sum(step.name == "decode" for step in event.steps)

    def _note(self, delta: Delta) -> None:
        for part in delta.parts:
            match part:
                case CallBegun():
                    self.begun, self.open = self.begun + 1, True
                case CallArguments():
                    self.arguments.append(part.text)
                case CallEnded():
                    self.ended, self.open = self.ended + 1, False

    @property
    def said(self) -> tuple[list[int], str]:
        """Its tokens, and its arguments."""
        return self.tokens, "".join(self.arguments)

    @property
    def valid(self) -> bool:
        """Whether it is one complete call that matches its schema."""
        try:
            jsonschema.Draft202012Validator(self._schema).validate(json.loads(self.said[1]))
        except (ValueError, jsonschema.ValidationError):
            return False
        return (self.begun, self.ended) == (1, 1)


async def streamed(client: AsyncClient, model: str, seeds: Sequence[int]) -> list[Call]:
    """Stream calls, all at once."""
    calls = [Call(seed) for seed in seeds]
    await asyncio.gather(*(call.stream(client, model) for call in calls))
    return calls


async def killed_within(
    running: Cluster, client: AsyncClient, seeds: Sequence[int], pid: int, draw: Random
) -> list[tuple[Call, bool]]:
    """Stream calls, and kill a worker while it writes some.

    Returns:
        Each call, and whether it was being written at that moment.
    """
    calls = [Call(seed) for seed in seeds]
    streams = [asyncio.create_task(call.stream(client, running.model)) for call in calls]
    share = draw.uniform(0.05, 0.6)
    written = [0]
    while len(written) * share > sum(length > 0 for length in written) or not any(written):
        await asyncio.sleep(0.005)
        written = [len(call.arguments) for call in calls]
    await asyncio.sleep(draw.uniform(0.0, 0.3))
    open_then = [call.open for call in calls]
    with suppress(ProcessLookupError):  # it was gone already: another one is killed next
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*streams)
    return list(zip(calls, open_then, strict=True))


async def settled(running: Cluster, seen: dict[int, float], seconds: float) -> list[int]:
    """Return the pids of the decode workers, once two of them may be killed.

    Args:
        running: the cluster.
        seen: the time since when each is running; kept between calls.
        seconds: the least time that they must have been running.
    """
    while True:
        now = time.monotonic()
        pids = [pid for name, pid in running.pids().items() if "decode" in name]
        for pid in pids:
            seen.setdefault(pid, now)
        if len(pids) == 2 and all(now - seen[pid] > seconds for pid in pids):
            return sorted(pids)
        await asyncio.sleep(0.2)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    draw = Random(options.seed)
    settings = {
        "BATON_ENGINE_DTYPE": "float64",
        "BATON_ENGINE_THREADS": "1",
        "BATON_TELEMETRY_LOG_LEVEL": "error",
    }
    counts: Counter[str] = Counter()
    seen: dict[int, float] = {}
    shape = (f"--engine={options.engine}", "--prefill=1", "--decode=2")
    async with cluster(*shape, settings=settings) as up, AsyncClient(up.grpc) as client:
        seeds = range(options.at_once)
        expected = {call.seed: call for call in await streamed(client, up.model, seeds)}
        counts["tokens_of_a_call"] = (
            sum(len(one.tokens) for one in expected.values()) // options.at_once
        )
        while counts["moved"] < options.calls:
            pid = draw.choice(await settled(up, seen, options.between))
            for call, was_open in await killed_within(up, client, seeds, pid, draw):
                right = expected[call.seed]
                same = call.said == right.said
                counts["calls"] += 1
                counts["same"] += same
                counts["valid"] += call.valid
                if was_open and call.decoders > 1:
                    counts["moved"] += 1
                    counts["moved_same"] += same
                    counts["moved_valid"] += call.valid
            counts["kills"] += 1
            print(dict(counts), flush=True)
    if counts["valid"] != counts["calls"] or counts["same"] != counts["calls"]:
        raise SystemExit("not kept: see above")
    return dict(counts)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=100, help="calls to move; default: 100")
    parser.add_argument("--engine", choices=("sim", "torch"), default="torch")
    parser.add_argument("--at-once", type=int, default=24, help="streams; default: 24")
    # A process that fails three times within 10 s of its start is not restarted.
    help_ = "least lifetime of a worker in seconds; default: 11"
    parser.add_argument("--between", type=float, default=11.0, help=help_)
    parser.add_argument("--seed", type=int, default=1, help="default: 1")


if __name__ == "__main__":
    cli.main(
        measure, __doc__, _arguments, smallest="--engine sim --calls 1 --at-once 4 --between 0"
    )
