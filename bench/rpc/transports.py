"""Cost of serving gRPC on each HTTP/2 stack: `python -m bench.rpc.transports`.

One unmodified grpc.aio client keeps 64 calls open; every 6 ms a step gives each of them a token.
Calls have 8 tokens, then 256. Prints the CPU of the server's process per token and per call,
everything included; Python, uvloop and protobuf are the same in all. `make bench-rpc` installs the
libraries into build/rpc-peers.
"""

import argparse
import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import grpc

from baton.v1.inference_pb2 import ChatMessage, ChatRequest, ChatResponse
from bench.harness import ROOT, cli
from bench.harness.child import process
from bench.harness.machine import cpu_seconds
from bench.harness.table import Table
from bench.rpc.steps import METHOD

SERVERS = {
    "grpc_aio": "grpc.aio (C core)",
    "grpclib": "grpclib (on h2)",
    "h2_library": "h2, one write a step",
    "ngh2_library": "ngh2 (compiled nghttp2)",
    "framing": "frames by hand (floor)",
    "baton_server": "Baton",
}
TOKENS = (8, 256)
WARM_SECONDS = 1.5
PEERS = ROOT / "build" / "rpc-peers"
_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class Clients:
    """Consecutive calls in each of several slots of one channel."""

    def __init__(self, channel: grpc.aio.Channel, streams: int, tokens: int) -> None:
        self._call = channel.unary_stream(
            METHOD, ChatRequest.SerializeToString, ChatResponse.FromString
        )
        request = ChatRequest(messages=[ChatMessage(role="user", content="x" * 500)])
        request.sampling.max_tokens = tokens
        self._request = request
        self._expected = tokens
        self.tokens = 0
        self._tasks = [asyncio.create_task(self._one_after_another()) for _ in range(streams)]

    async def _one_after_another(self) -> None:
        while True:
            call = self._call(self._request)
            seen = 0
            while (await call.read()) is not _END:
                seen += 1
                self.tokens += 1
            if seen != self._expected:
                raise SystemExit(f"{seen} tokens instead of {self._expected}")

    async def during(self, seconds: float) -> None:
        """Run the calls; raise the exception of a failed one."""
        done, _ = await asyncio.wait(
            self._tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


async def measure_one(name: str, tokens: int, options: argparse.Namespace) -> dict[str, float]:
    """Start the server, load it, and return its cost."""
    command = (sys.executable, "-m", "bench.rpc.serve", name, str(options.step_ms / 1e3))
    settings = {"PYTHONPATH": f"{ROOT}:{options.peers}"}
    async with process(command, settings, stdout=PIPE) as server:
        assert server.stdout is not None
        port = (await server.stdout.readline()).decode().strip()
        if not port:
            raise SystemExit(f"{name} did not start: see standard error; `make bench-rpc` installs")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            clients = Clients(channel, options.streams, tokens)
            await clients.during(WARM_SECONDS)
            before = (clients.tokens, cpu_seconds(server.pid), time.monotonic())
            own = time.process_time()
            await clients.during(options.seconds)
            after = (clients.tokens, cpu_seconds(server.pid), time.monotonic())
            own = time.process_time() - own
            await clients.close()
    count, cpu, seconds = (b - a for a, b in zip(before, after, strict=True))
    return {
        "tokens_per_second": count / seconds,
        "server_us_per_token": cpu / count * 1e6,
        "server_us_per_call": cpu / count * tokens * 1e6,
        "client_us_per_token": own / count * 1e6,
        "server_cores": cpu / seconds,
    }


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("server", "<24"),
        ("tokens/call", "11"),
        ("tokens/s", "8.0f"),
        ("us/token", "8.1f"),
        ("us/call", "8.0f"),
        ("client us/token", "15.1f"),
    )
    best: dict[tuple[str, int], dict[str, float]] = {}
    for _ in range(options.rounds):
        for name in options.only or SERVERS:
            for tokens in TOKENS:
                found = await measure_one(name, tokens, options)
                known = best.get((name, tokens))
                if known is None or found["server_us_per_token"] < known["server_us_per_token"]:
                    best[name, tokens] = found
    for (name, tokens), found in best.items():
        table.row(
            SERVERS[name],
            tokens,
            found["tokens_per_second"],
            found["server_us_per_token"],
            found["server_us_per_call"],
            found["client_us_per_token"],
        )
    print(
        "\nof which, from both loads:  us per more token, us per call without its tokens",
        flush=True,
    )
    few, many = TOKENS
    for name in options.only or SERVERS:
        low, high = (best[name, tokens]["server_us_per_call"] for tokens in TOKENS)
        token = (high - low) / (many - few)
        print(f"{SERVERS[name]:<24}  {token:8.1f}  {low - few * token:8.0f}", flush=True)
    return [{"server": name, "tokens": tokens, **found} for (name, tokens), found in best.items()]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=SERVERS, help="default: all")
    parser.add_argument("--streams", type=int, default=64, help="default: 64")
    parser.add_argument("--step-ms", type=float, default=6.0, help="default: 6")
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each; default: 6")
    parser.add_argument("--peers", type=Path, default=PEERS, help="directory of the libraries")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=2,
        smallest="--rounds 1 --only baton_server --streams 8 --seconds 1",
    )
