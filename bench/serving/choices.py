"""Neighbours of clients that ask for many choices: `python -m bench.serving.choices`.

Starts a cluster of one prefill and one decode worker whose engine is simulated. Some clients keep
streams of several choices running, over gRPC; beside them others ask for one choice at a time, as
prompts come and go. Prints how many requests of either failed, how many of these after their answer
had begun, and the longest time for which a neighbour heard nothing: before its first token, and
after it.
"""

import argparse
import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc

from baton.rpc.channels import open_channel
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness import cli
from bench.harness.cluster import Cluster, cluster
from bench.harness.table import Table

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_PAUSE_SECONDS = 0.05
"""Of a client that was refused, before it asks again."""


@dataclass
class Seen:
    """What clients of one kind saw."""

    asked: int = 0
    failed: int = 0
    late_errors: int = 0
    """Of these, after their answer had begun."""
    sample: str = ""
    """What the first error said."""
    tokens: int = 0
    choices: Counter[int] = field(default_factory=Counter)
    """Answers by how many choices ended in them."""
    first_silence: float = 0.0
    """The longest wait for a first token, in seconds."""
    silence: float = 0.0
    """The longest wait for a token after the first, in seconds."""


async def ask(stub: Any, request: inference_pb2.ChatRequest, seen: Seen, timeout: float) -> None:
    """Read one answer to its end."""
    seen.asked += 1
    began = last = time.perf_counter()
    started = first = False
    ended = 0
    call = stub.Chat(request, timeout=timeout)
    try:
        while (event := await call.read()) is not _END:
            started = True
            ended += event.HasField("choice_finished")
            if not event.HasField("delta"):
                continue
            now = time.perf_counter()
            if first:
                seen.silence = max(seen.silence, now - last)
            else:
                seen.first_silence = max(seen.first_silence, now - began)
            first, last = True, now
            seen.tokens += len(event.delta.token_ids)
        seen.choices[ended] += 1
    except grpc.aio.AioRpcError as error:
        seen.failed += 1
        seen.late_errors += started
        seen.sample = seen.sample or f"{error.code().name}: {error.details()}"[:200]
        await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        call.cancel()


def chat(model: str, text: str, n: int, output_tokens: int) -> inference_pb2.ChatRequest:
    """Return a request whose outputs are as long as they may be."""
    request = inference_pb2.ChatRequest(
        messages=[inference_pb2.ChatMessage(role="user", content=text)]
    )
    request.context.model = model
    request.n = n
    request.sampling.temperature = 1.0
    request.sampling.max_tokens = output_tokens
    request.sampling.ignore_eos = True
    return request


async def flood(up: Cluster, options: argparse.Namespace) -> tuple[Seen, Seen]:
    """Return what the neighbours saw, and the clients of many choices."""
    neighbours, flooding = Seen(), Seen()
    until = time.perf_counter() + options.seconds
    async with open_channel(up.grpc) as many, open_channel(up.grpc) as few:
        crowd, quiet = InferenceServiceStub(many), InferenceServiceStub(few)

        async def client(
            stub: Any, name: str, number: int, n: int, tokens: int, seen: Seen
        ) -> None:
            count = 0
            while not count or time.perf_counter() < until:
                count += 1
                text = f"{name} {number}: question {count}"
                await ask(stub, chat(up.model, text, n, tokens), seen, options.timeout)

        async with asyncio.TaskGroup() as clients:
            for number in range(options.streams):
                clients.create_task(
                    client(crowd, "flood", number, options.n, options.output_tokens, flooding)
                )
            for number in range(options.neighbours):
                clients.create_task(client(quiet, "neighbour", number, 1, 32, neighbours))
    return neighbours, flooding


async def measure(options: argparse.Namespace) -> dict[str, object]:
    settings = {"BATON_DRAIN_SECONDS": "1"}
    if options.max_running:
        settings["BATON_ENGINE_MAX_RUNNING"] = str(options.max_running)
    if options.max_waiting is not None:
        settings["BATON_ENGINE_MAX_WAITING"] = str(options.max_waiting)
    began = time.perf_counter()
    async with cluster("--prefill=1", "--decode=1", "--engine=sim", settings=settings) as up:
        began = time.perf_counter()
        neighbours, flooding = await flood(up, options)
    seconds = time.perf_counter() - began
    table = Table(
        ("clients", "<12"),
        ("asked", "6d"),
        ("failed", "6d"),
        ("after 200", "9d"),
        ("first token s", "9.2f"),
        ("silence s", "9.2f"),
        ("tokens/s", "9.0f"),
    )
    for name, seen in (("neighbours", neighbours), (f"n = {options.n}", flooding)):
        table.row(
            name,
            seen.asked,
            seen.failed,
            seen.late_errors,
            seen.first_silence,
            seen.silence,
            seen.tokens / seconds,
        )
        if seen.sample:
            print(f"  {seen.sample}")
    return {"neighbours": vars(neighbours), "flooding": vars(flooding)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, default=64, help="that ask for several choices")
    parser.add_argument("--n", type=int, default=8, help="choices of each")
    parser.add_argument("--output-tokens", type=int, default=200, help="of each choice")
    parser.add_argument("--neighbours", type=int, default=64, help="clients of one choice")
    parser.add_argument("--seconds", type=float, default=15.0, help="for which new ones are sent")
    parser.add_argument("--timeout", type=float, default=120.0, help="of each request, in seconds")
    parser.add_argument("--max-running", type=int, default=0, help="0: the default")
    parser.add_argument("--max-waiting", type=int, default=None, help="by default the default")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--streams 4 --neighbours 4 --seconds 1 --output-tokens 20 "
        "--max-running 8 --max-waiting 4",
    )
