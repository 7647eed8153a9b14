"""Cost of `baton.client` compared with the bare generated stub: `python -m bench.serving.client`.

Starts a cluster with the simulated engine, with a step of constant length. For each way of calling,
a separate process streams outputs through it and measures its own CPU time, of all threads: with
one open stream, and with 64. Prints the CPU per token of long outputs, and per request of short
ones, each with the bare stub's in the same round, and the frontend's CPU.
"""

import argparse
import asyncio
import json
import sys
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import grpc

from baton.client import AsyncClient, Client, Delta
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from bench.harness.child import process
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import cpu_seconds
from bench.harness.table import Table
from bench.serving.token_path import SETTINGS

PROMPT = list(range(5, 37))
LOADS = {
    # concurrent streams, output tokens, requests
    "1 x 256": (1, 256, 2),
    "64 x 256": (64, 256, 128),
    "1 x 8": (1, 8, 40),
    "64 x 8": (64, 8, 1280),
}


@dataclass(frozen=True)
class Ask:
    """The task of one way of calling."""

    way: str
    address: str
    model: str
    streams: int
    tokens: int
    requests: int


async def stub_async(ask: Ask, next_request: Callable[[], bool]) -> int:
    request, tokens = _request(ask), 0
    async with grpc.aio.insecure_channel(ask.address) as channel:
        stub: Any = InferenceServiceStub(channel)

        async def caller() -> None:
            nonlocal tokens
            while next_request():
                async for response in stub.Generate(request, timeout=600):
                    if response.WhichOneof("event") == "delta":
                        tokens += len(response.delta.token_ids)

        await asyncio.gather(*(caller() for _ in range(ask.streams)))
    return tokens


async def client_async(ask: Ask, next_request: Callable[[], bool]) -> int:
    tokens = 0
    async with AsyncClient(ask.address) as client:

        async def caller() -> None:
            nonlocal tokens
            while next_request():
                async with client.generate(PROMPT, **_options(ask)) as stream:
                    async for event in stream:
                        if isinstance(event, Delta):
                            tokens += len(event.token_ids)

        await asyncio.gather(*(caller() for _ in range(ask.streams)))
    return tokens


def stub_sync(ask: Ask, next_request: Callable[[], bool]) -> int:
    request = _request(ask)
    with grpc.insecure_channel(ask.address) as channel:
        stub = InferenceServiceStub(channel)

        def caller() -> int:
            tokens = 0
            while next_request():
                for response in stub.Generate(request, timeout=600):
                    if response.WhichOneof("event") == "delta":
                        tokens += len(response.delta.token_ids)
            return tokens

        return _on_threads(caller, ask.streams)


def client_sync(ask: Ask, next_request: Callable[[], bool]) -> int:
    with Client(ask.address) as client:

        def caller() -> int:
            tokens = 0
            while next_request():
                with client.generate(PROMPT, **_options(ask)) as stream:
                    for event in stream:
                        if isinstance(event, Delta):
                            tokens += len(event.token_ids)
            return tokens

        return _on_threads(caller, ask.streams)


WAYS: dict[str, Any] = {
    "stub async": stub_async,
    "client async": client_async,
    "stub sync": stub_sync,
    "client sync": client_sync,
}


def _on_threads(caller: Callable[[], int], count: int) -> int:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(caller())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def _request(ask: Ask) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest()
    request.context.model = ask.model
    request.token_ids.ids.extend(PROMPT)
    request.sampling.max_tokens = ask.tokens
    request.sampling.ignore_eos = True
    request.sampling.temperature = 0.0
    return request


def _options(ask: Ask) -> dict[str, Any]:
    options = {"model": ask.model, "max_tokens": ask.tokens, "timeout": 600.0}
    return {**options, "ignore_eos": True, "temperature": 0.0}


def call(ask: Ask) -> dict[str, float]:
    """Make the calls in this process, and return their cost."""
    left = ask.requests
    lock = threading.Lock()

    def next_request() -> bool:
        nonlocal left
        with lock:
            left -= 1
            return left >= 0

    way, tokens, before = WAYS[ask.way], 0, time.process_time()
    if asyncio.iscoroutinefunction(way):
        tokens = asyncio.run(way(ask, next_request))
    else:
        tokens = way(ask, next_request)
    used = time.process_time() - before
    if tokens != ask.requests * ask.tokens:
        raise SystemExit(f"{ask.way}: {tokens} tokens instead of {ask.requests * ask.tokens}")
    return {"us_per_token": used / tokens * 1e6, "us_per_request": used / ask.requests * 1e6}


async def measure_way(ask: Ask) -> dict[str, float]:
    """Make the calls in a separate process."""
    command = (sys.executable, "-m", "bench.serving.client", "--call", json.dumps(vars(ask)))
    async with process(command, stdout=PIPE) as child:
        said, _ = await child.communicate()
    if child.returncode:
        raise SystemExit(f"{ask.way} failed: see what it said above")
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


async def compare(up: Cluster, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each load by every way, in rounds."""
    table = Table(
        ("load", "<9"),
        ("way", "<12"),
        ("us/token", "8.1f"),
        ("us/request", "10.0f"),
        ("beside the stub", "15.2f"),
        ("frontend us/token", "17.1f"),
        ("us/request", "10.0f"),
    )
    front = up.pids()["frontend-0"]
    found = []
    for name, (streams, tokens, requests) in LOADS.items():
        if name not in options.loads:
            continue
        rounds: dict[str, list[dict[str, float]]] = {way: [] for way in options.ways}
        for _ in range(options.rounds):
            for way, measured in rounds.items():
                ask = Ask(way, up.grpc, up.model, streams, tokens, requests)
                before = cpu_seconds(front)
                measured.append(await measure_way(ask))
                used = (cpu_seconds(front) - before) / requests * 1e6
                measured[-1] |= {"frontend_us_per_request": used}
                measured[-1] |= {"frontend_us_per_token": used / tokens}
        for way, measured in rounds.items():
            row: dict[str, Any] = {"load": name, "way": way}
            for what in measured[0]:
                row[what] = median([one[what] for one in measured])
            bare = rounds.get(f"stub {way.split()[1]}")
            if bare is not None:
                pairs = zip(measured, bare, strict=True)
                ratios = [one["us_per_token"] / stub["us_per_token"] for one, stub in pairs]
                row["ratio"] = median(ratios)
            found.append(row)
            table.row(
                name,
                way,
                row["us_per_token"],
                row["us_per_request"],
                row.get("ratio", "-"),
                row["frontend_us_per_token"],
                row["frontend_us_per_request"],
            )
    return found


async def measure(options: argparse.Namespace) -> object:
    model = tokenizer_only("client")
    settings = {
        **SETTINGS,
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(options.step),
        "BATON_ENGINE_SIM_DECODE_SEQUENCE_SECONDS": "0",
    }
    workers = ("--prefill=0", "--decode=0", "--combined=1", "--engine=sim")
    async with cluster(*workers, f"--model={model}", settings=settings) as up:
        return await compare(up, options)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--step", type=float, default=0.02, help="seconds per engine step")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--call"]:
        print(json.dumps(call(Ask(**json.loads(sys.argv[2])))))
    else:
        cli.main(
            measure,
            __doc__,
            arguments,
            rounds=3,
            smallest='--rounds 1 --loads "1 x 8" --ways "client async" --step 0.002',
        )
