"""Time to reject bad input, by its kind: `python -m bench.tenancy.bad_input`.

Sends requests to a frontend with 100,000 keys, over HTTP and over gRPC, one after the other and
with kinds in a random order: without a key, with invalid keys, without permission, in the name of
another tenant, over a limit. Prints the durations of rejections; each must be the one that
docs/api.md names.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.channels import open_channel
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.tenants import Key, encode
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.serving.authentication import records
from bench.tenancy.scene import Scene, scene

COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}
LONGEST_MS = 5.0
HEADER_BYTES = 10_000_000
DENIED, INVALID = Reason.PERMISSION_DENIED, Reason.INVALID_API_KEY


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of bad input."""

    name: str
    reason: Reason
    key: Mapping[str, Any] | None = None
    """Fields of its key beyond the usual ones; None: an unknown key."""
    headers: Mapping[str, str] = field(default_factory=dict)
    tenant: str = ""
    """The tenant in the body, and over gRPC in the context."""


KINDS = (
    Kind("no key", INVALID, None, {"authorization": ""}),
    Kind("not as Bearer", INVALID, None, {"authorization": "Basic eDp5"}),
    Kind("an unknown key", INVALID),
    Kind("a revoked key", INVALID, {"revoked_seconds": 1}),
    Kind("an expired key", INVALID, {"expires_seconds": 1}),
    Kind("no such scope", DENIED, {"scopes": ("usage",)}),
    Kind("a model that is not the key's", Reason.MODEL_NOT_ALLOWED, {"models": ("other",)}),
    Kind("another tenant's name", DENIED, {}, {"openai-organization": "other"}),
    Kind("another project's name", DENIED, {}, {"openai-project": "other"}),
    Kind("another tenant in the body", DENIED, {}, tenant="other"),
    Kind("more tokens than allowed", Reason.CONTEXT_LENGTH_EXCEEDED, {"context_tokens": 2}),
    Kind("beyond its limit", Reason.RATE_LIMITED, {"tokens_per_minute": 1}),
)


def kinds_records() -> tuple[list[tuple[str, bytes]], dict[Kind, dict[str, str]]]:
    """Return records of keys for all kinds, and the headers of requests."""
    stored, headers = [], {}
    for number, kind in enumerate(KINDS):
        secret = new_secret()
        headers[kind] = {"authorization": f"Bearer {secret}", **kind.headers}
        if not headers[kind]["authorization"]:
            del headers[kind]["authorization"]
        if kind.key is None:
            continue
        fields: dict[str, Any] = {"scopes": ("inference",), **kind.key}
        key = Key(
            id=f"key_ffff{number:012x}",
            project=f"proj_{number:016x}",
            sha256=digest_of(secret.encode()),
            **fields,
        )
        stored.append((f"keys/{key.id}", encode(key)))
    return stored, headers


Ask = Callable[[Kind, Mapping[str, str]], Awaitable[Reason]]


async def over_http(
    up: Scene, run: Callable[[Ask], Awaitable[dict[Kind, list[float]]]]
) -> dict[Kind, list[float]]:
    connection = http.client.HTTPConnection("127.0.0.1", up.fleet.frontends[0].http_port)
    by_code = {one.openai_code: one for one in Reason}

    async def ask(kind: Kind, headers: Mapping[str, str]) -> Reason:
        body: dict[str, Any] = {
            "model": up.model,
            "max_tokens": 2,
            "messages": [{"role": "user", "content": "hi"}],
        }
        if kind.tenant:
            body["tenant"] = kind.tenant
        sent = {**headers, "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), sent)
        return by_code[json.loads(connection.getresponse().read())["error"]["code"]]

    try:
        return await run(ask)
    finally:
        connection.close()


async def over_grpc(
    up: Scene, run: Callable[[Ask], Awaitable[dict[Kind, list[float]]]]
) -> dict[Kind, list[float]]:
    async with open_channel(up.grpc[0]) as channel:
        stub: Any = InferenceServiceStub(channel)

        async def ask(kind: Kind, headers: Mapping[str, str]) -> Reason:
            request = inference_pb2.ChatRequest()
            request.context.model, request.context.tenant = up.model, kind.tenant
            request.messages.add(role="user", content="hi")
            request.sampling.max_tokens = 2
            call = stub.Chat(request, metadata=tuple(headers.items()), timeout=30)
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                return BatonError.from_rpc_error(error).reason
            raise RuntimeError(f"{kind.name} was answered")

        return await run(ask)


async def large_header_seconds(up: Scene, count: int) -> list[float]:
    """Return the time until a header of 10 MB is rejected, from its first byte on."""
    port = up.fleet.frontends[0].http_port
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
    data = head + b"x" * HEADER_BYTES + b"\r\n\r\n"
    taken = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.perf_counter()
        writer.write(data)
        status = await reader.readline()
        taken.append(time.perf_counter() - began)
        writer.transport.abort()  # the rest is not read
        if b" 431 " not in status:
            raise RuntimeError(f"a header of 10 MB was answered {status!r}")
    return taken


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"load average {os.getloadavg()[0]:.1f}")
    stored, _ = records(options.keys, {})
    made, headers = kinds_records()
    table = Table(
        ("where", "<5"),
        ("what", "<30"),
        ("asked", "6"),
        ("ms p50", "7.2f"),
        ("p99", "7.2f"),
        ("longest", "7.2f"),
        ("", "<9"),
    )
    found: list[dict[str, Any]] = []

    def show(where: str, what: str, seconds: list[float]) -> None:
        p50, p99 = (percentile(seconds, percent) * 1e3 for percent in (50, 99))
        longer = "" if p99 <= LONGEST_MS else f"> {LONGEST_MS:g} ms"
        table.row(where, what, len(seconds), p50, p99, max(seconds) * 1e3, longer)
        found.append({"where": where, "what": what, "p50_ms": p50, "p99_ms": p99})

    async def run(ask: Ask) -> dict[Kind, list[float]]:
        taken: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
        order = [kind for kind in KINDS for _ in range(options.requests)]
        random.shuffle(order)
        for kind in [*KINDS, *order]:
            began = time.perf_counter()
            reason = await ask(kind, headers[kind])
            taken[kind].append(time.perf_counter() - began)
            if reason is not kind.reason:
                raise RuntimeError(f"{kind.name} was refused as {reason}, not {kind.reason}")
        return {kind: seconds[1:] for kind, seconds in taken.items()}  # the first was a warm-up

    async with scene(COUNTS, before=stored + made) as up:
        for where, over in (("http", over_http), ("grpc", over_grpc)):
            for kind, seconds in (await over(up, run)).items():
                show(where, kind.name, seconds)
        show("http", "a header of 10 MB", await large_header_seconds(up, options.requests // 10))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100000")
    parser.add_argument(
        "--requests", type=int, default=1000, help="requests per kind; default: 1000"
    )


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--keys 100 --requests 10")
