"""Whether the time of a rejection reveals anything: `python -m bench.tenancy.refusals`.

Sends an unknown key, a key that differs from a valid one in its last letter, a revoked one and an
expired one, in a random order, with 100,000 keys: in this process, by the frontend's own code, and
to a frontend over HTTP and over gRPC. Prints the durations of rejections, and the AUC compared with
the unknown key: how often a rejection takes longer. 0.5: the two are indistinguishable. Unknown and
wrong keys get the same error; revoked and expired ones get errors that name the reason, so that
their times need not hide it.

`positive`: the same with a key whose rejection waits 100 µs longer (over HTTP and gRPC, an unknown
key of a client that waits 0.3 ms): how a difference would show.
"""

import argparse
import asyncio
import gc
import http.client
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc

from baton.errors import BatonError
from baton.rpc.channels import open_channel
from baton.tenancy.directory.directory import Directory
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.tenants import Key, encode
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness import cli
from bench.harness.stats import auc, percentile
from bench.harness.table import Table
from bench.serving.authentication import Uses, fields, records
from bench.tenancy.scene import Scene, scene
from services.frontend.access.authenticator import KeyAuthentication

KINDS = ("unknown", "wrong", "revoked", "expired")
POSITIVE = "positive"
POSITIVE_SECONDS, POSITIVE_REMOTE_SECONDS = 1e-4, 3e-4
EACH = 50
"""Keys of each kind: chosen anew for each request, as by an attacker who guesses."""
COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}


def refused_keys(good: Sequence[bytes]) -> tuple[list[tuple[str, bytes]], dict[str, list[str]]]:
    """Return records of invalid keys, and secrets by the reason."""
    secrets: dict[str, list[str]] = {kind: [new_secret() for _ in range(EACH)] for kind in KINDS}
    secrets["wrong"] = [_changed(one.decode()) for one in random.sample(list(good), EACH)]
    secrets[POSITIVE] = secrets["unknown"]
    made = []
    for kind, field in (("revoked", "revoked_seconds"), ("expired", "expires_seconds")):
        for number, secret in enumerate(secrets[kind]):
            since: dict[str, Any] = {field: 1_700_000_000}
            key = Key(
                id=f"key_{(kind == 'expired') + 1:08x}{number:08x}",
                project=f"proj_{number:016x}",
                sha256=digest_of(secret.encode()),
                scopes=("inference",),
                **since,
            )
            made.append((f"keys/{key.id}", encode(key)))
    return made, secrets


def _changed(secret: str) -> str:
    return secret[:-1] + ("A" if secret[-1] != "A" else "B")


def order(each: int) -> list[str]:
    """Return kinds in a random order, each the same number of times."""
    kinds = [kind for kind in (*KINDS, POSITIVE) for _ in range(each)]
    random.shuffle(kinds)
    return kinds


def in_process(
    stored: Sequence[tuple[str, bytes]], secrets: Mapping[str, list[str]], each: int
) -> dict[str, list[float]]:
    directory, noting = Directory(), Uses()
    for name, value in stored:
        directory.put(name, value)
    uses: Any = noting
    authentication = KeyAuthentication(directory, uses)
    taken: dict[str, list[float]] = {kind: [] for kind in (*KINDS, POSITIVE)}
    headers = {kind: [fields(secret.encode()) for secret in some] for kind, some in secrets.items()}
    gc.collect()
    gc.disable()
    clock = time.perf_counter
    for kind in order(each):
        header = random.choice(headers[kind])
        began = clock()
        try:
            authentication.admit(authentication.read(header))
        except BatonError:
            seconds = clock() - began
        else:
            raise RuntimeError(f"a key that is {kind} was taken")
        taken[kind].append(seconds + POSITIVE_SECONDS * (kind == POSITIVE))
    gc.enable()
    return taken


async def over(
    ask: Callable[[str], Awaitable[None]], secrets: Mapping[str, list[str]], each: int
) -> dict[str, list[float]]:
    """Send one invalid key after the other; return the durations, by kind."""
    taken: dict[str, list[float]] = {kind: [] for kind in (*KINDS, POSITIVE)}
    for _ in range(100):
        await ask(random.choice(secrets["unknown"]))
    for kind in order(each):
        secret = random.choice(secrets[kind])
        began = time.perf_counter()
        await ask(secret)
        seconds = time.perf_counter() - began
        taken[kind].append(seconds + POSITIVE_REMOTE_SECONDS * (kind == POSITIVE))
    return taken


async def http_seconds(
    up: Scene, secrets: Mapping[str, list[str]], each: int
) -> dict[str, list[float]]:
    connection = http.client.HTTPConnection("127.0.0.1", up.fleet.frontends[0].http_port)
    body = json.dumps({"model": up.model, "messages": [{"role": "user", "content": "hi"}]})

    async def ask(secret: str) -> None:
        headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 401:
            raise RuntimeError(f"the answer was {answer.status}, not 401")

    try:
        return await over(ask, secrets, each)
    finally:
        connection.close()


async def grpc_seconds(
    up: Scene, secrets: Mapping[str, list[str]], each: int
) -> dict[str, list[float]]:
    channel = open_channel(up.grpc[0])
    stub: Any = InferenceServiceStub(channel)
    request = inference_pb2.ChatRequest(
        messages=[inference_pb2.ChatMessage(role="user", content="hi")]
    )
    request.context.model = up.model

    async def ask(secret: str) -> None:
        metadata = (("authorization", f"Bearer {secret}"),)
        call = stub.Chat(request, metadata=metadata, timeout=30)
        with suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        if await call.code() is not grpc.StatusCode.UNAUTHENTICATED:
            raise RuntimeError(f"the answer was {await call.code()}, not UNAUTHENTICATED")

    try:
        return await over(ask, secrets, each)
    finally:
        await channel.close(None)


def show(table: Table, where: str, taken: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    found = []
    for kind, seconds in taken.items():
        p50, p99 = (percentile(seconds, percent) * 1e3 for percent in (50, 99))
        against = "-" if kind == "unknown" else f"{auc(seconds, taken['unknown']):.3f}"
        table.row(where, kind, len(seconds), p50, p99, against)
        found.append(
            {"where": where, "key": kind, "p50_ms": p50, "p99_ms": p99, "auc_to_unknown": against}
        )
    return found


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"load average {os.getloadavg()[0]:.1f}")
    stored, good = records(options.keys, {})
    refused, secrets = refused_keys(good)
    stored += refused
    table = Table(
        ("where", "<8"),
        ("key", "<8"),
        ("asked", "6"),
        ("ms p50", "8.4f"),
        ("p99", "8.4f"),
        ("AUC to unknown", ">14"),
    )
    found = show(table, "process", in_process(stored, secrets, options.requests))
    async with scene(COUNTS, before=stored) as up:
        await asyncio.sleep(1)
        for where, asking in (("http", http_seconds), ("grpc", grpc_seconds)):
            found += show(table, where, await asking(up, secrets, options.remote))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100000")
    help_ = "requests per kind in this process; default: 20000"
    parser.add_argument("--requests", type=int, default=20_000, help=help_)
    help_ = "requests per kind over HTTP and over gRPC; default: 2000"
    parser.add_argument("--remote", type=int, default=2000, help=help_)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--keys 100 --requests 100 --remote 20")
