"""Cost of mutual TLS between two processes: `python -m bench.rpc.mtls`.

A server and a client process on one machine, with plain text and with certificates in turn. Prints
the CPU of both sides together, and TLS's share of it: per connection, per call of a few bytes, per
token of a stream with a message of `--tokens` each `--pace-ms`, and per MiB of messages of 1 MiB,
as KV is transferred between hosts.
"""

import argparse
import asyncio
import os
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import uvloop

from baton.cli.admin.certs.directory import CertificateDirectory
from baton.rpc.channel.channel import Channel
from baton.rpc.http2.limits import BULK_LIMITS
from baton.rpc.server.server import Server
from baton.rpc.tls.mutual import mutual_tls
from baton.rpc.transport.inbox import END
from baton.settings import GrpcSettings, TlsSettings
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.child import Helper, helper
from bench.harness.table import Table

WORKER = "baton.internal.v1.WorkerService"
CALL, STEPS, BULK = (f"/{WORKER}/{name}" for name in ("GetTokenizer", "Run", "WatchLoad"))
"""Names of methods that a frontend and a router may call; here they carry bytes."""
TOKEN_BYTES = 7
"""Approximate bytes per token of a step's message."""
MIB = 1 << 20
LANES = 16
Seconds = dict[str, float]


def settings_of(directory: str) -> TlsSettings:
    """Return the settings for a folder of `baton certs`; empty: plain text."""
    if not directory:
        return TlsSettings()
    own = Path(directory)
    return TlsSettings(cert=own / "tls.crt", key=own / "tls.key", ca=own / "ca.crt")


# The server's process.


async def answer(request: bytes, _: Any) -> bytes:
    return request


async def steps(requests: AsyncIterator[bytes], context: Any) -> None:
    """Send a number of messages of a size at a pace."""
    async for request in requests:
        size, count, pace_us = map(int, request.split())
        message, due = secrets.token_bytes(size), time.monotonic()
        for _ in range(count):
            await context.write(message)
            due = max(due + pace_us / 1e6, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


async def bulk(request: bytes, context: Any) -> None:
    """Send messages of 1 MiB."""
    message = secrets.token_bytes(MIB)
    for _ in range(int(request)):
        await context.write(message)


async def serve(directory: str) -> None:
    """Serve until standard input ends; print the address, and CPU seconds for each line read."""
    logs.configure("bench", "bench", "warning")
    handlers = {
        "GetTokenizer": grpc.unary_unary_rpc_method_handler(answer),
        "Run": grpc.stream_stream_rpc_method_handler(steps),
        "WatchLoad": grpc.unary_stream_rpc_method_handler(bulk),
    }
    async with (
        mutual_tls(settings_of(directory)) as tls,
        Server(GrpcSettings(), "bench", limits=BULK_LIMITS, tls=tls) as server,
    ):
        server.add(lambda to: to.add_registered_method_handlers(WORKER, handlers), WORKER)
        await server.start()
        print(server.address, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)
        os._exit(0)  # there is nothing to return


# The client's process, which is this one.


async def connections(address: str, options: argparse.Namespace) -> int:
    """Make a number of calls, each on a new connection."""
    for _ in range(options.connections):
        async with Channel(address) as channel:
            await channel.unary_unary(CALL, bytes, bytes)(b"hello", timeout=30)
    return int(options.connections)


async def calls(address: str, options: argparse.Namespace) -> int:
    """Make small calls, several at a time, on one connection."""
    async with Channel(address) as channel:
        call = channel.unary_unary(CALL, bytes, bytes)

        async def lane() -> None:
            for _ in range(options.calls // LANES):
                await call(b"hello", timeout=30)

        await asyncio.gather(*(lane() for _ in range(LANES)))
    return int(options.calls // LANES * LANES)


async def tokens(address: str, options: argparse.Namespace) -> int:
    """Read the steps of an engine; return their number of tokens."""
    count = int(options.seconds * 1e3 / options.pace_ms)
    async with Channel(address) as channel:
        call = channel.stream_stream(STEPS, bytes, bytes)()
        call.send(f"{options.tokens * TOKEN_BYTES} {count} {options.pace_ms * 1e3:.0f}".encode())
        call.half_close()
        while await call.read() is not END:
            pass
    return count * int(options.tokens)


async def megabytes(address: str, options: argparse.Namespace) -> int:
    """Read messages of 1 MiB."""
    async with Channel(address) as channel:
        call = channel.unary_stream(BULK, bytes, len)(str(options.mib).encode())
        while await call.read() is not END:
            pass
    return int(options.mib)


WORK: dict[str, tuple[str, Callable[[str, argparse.Namespace], Awaitable[int]]]] = {
    # per: (the client's role, work)
    "connection": ("frontend", connections),
    "call": ("frontend", calls),
    "token": ("frontend", tokens),
    "MiB": ("router", megabytes),
}


async def cost(server: Helper, address: str, name: str, options: argparse.Namespace) -> float:
    """Return the µs of CPU per unit, for both sides."""
    _, work = WORK[name]
    served, began = float(await server.ask("")), time.process_time()
    count = await work(address, options)
    own = time.process_time() - began
    return (own + float(await server.ask("")) - served) / count * 1e6


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    seen: dict[tuple[str, str], list[float]] = {}
    with TemporaryDirectory() as scratch:
        certificates = CertificateDirectory(Path(scratch))
        certificates.add_authority()
        certificates.issue("baton", 1, ["127.0.0.1"])
        async with (
            helper("bench.rpc.mtls", "serve", "") as plain,
            helper("bench.rpc.mtls", "serve", f"{scratch}/decode") as mutual,
        ):
            servers = {"plain": plain, "mTLS": mutual}
            addresses = {kind: await server.receive() for kind, server in servers.items()}
            for number in range(options.rounds + 1):
                for name, (role, _) in WORK.items():
                    for kind, server in servers.items():
                        own = f"{scratch}/{role}" if server is mutual else ""
                        async with mutual_tls(settings_of(own)):
                            spent = await cost(server, addresses[kind], name, options)
                        if number:  # the first one warms up
                            seen.setdefault((name, kind), []).append(spent)
    table = Table(("per", "<11"), ("plain us", "10.2f"), ("mTLS us", "10.2f"), ("ratio", "6.2f"))
    found = []
    for name in WORK:
        before, after = (statistics.median(seen[name, kind]) for kind in ("plain", "mTLS"))
        found.append({"per": name, "plain_us": before, "mtls_us": after, "ratio": after / before})
        table.row(*found[-1].values())
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=64, help="tokens per message")
    parser.add_argument("--pace-ms", type=float, default=6.0, help="interval between messages")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of a stream")
    parser.add_argument("--mib", type=int, default=256)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve(sys.argv[2]))
    else:
        cli.main(
            measure,
            __doc__,
            arguments,
            rounds=5,
            smallest="--rounds 1 --connections 4 --calls 40 --seconds 0.5 --mib 4",
        )
