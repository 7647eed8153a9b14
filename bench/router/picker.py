"""Cost of picking a frontend for a gateway.

A picker process with 8 frontends, and a client that sends what Envoy sends for one HTTP request:
the head alone, a body of 8 KiB that is passed on, the same with a response of 100 events that
passes too. Prints the picker's CPU microseconds per request, and the median of the milliseconds
until the destination is known.

    python -m bench.router.picker [--requests 3000] [--streams 8] [--json FILE]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd, free_port
from baton.errors import BatonError
from baton.internal.envoy.external_processor_pb2 import HttpBody, ProcessingRequest
from baton.internal.envoy.external_processor_pb2_grpc import ExternalProcessorStub
from baton.internal.envoy.processing_mode_pb2 import ProcessingMode
from baton.internal.v1.cluster_pb2 import ROLE_FRONTEND, Instance
from baton.rpc.channel.channel import Channel
from bench.harness import cli
from bench.harness.child import process
from bench.harness.machine import cpu_seconds
from bench.harness.stats import percentile
from bench.harness.table import Table

FRONTENDS = 8
BODY = json.dumps({"model": "m", "stream": True, "prompt": "x" * 8192}).encode()
EVENT = b'data: {"choices": [{"delta": {"content": " word"}}]}\n\n' * 4
EVENTS = 100


def _request(body: bytes) -> list[ProcessingRequest]:
    head = ProcessingRequest()
    head.request_headers.end_of_stream = not body
    for name in ("authorization", "content-type", "user-agent", "x-request-id"):
        value = "application/json" if name == "content-type" else "some-value" * 4
        head.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    mode = ProcessingMode.FULL_DUPLEX_STREAMED
    head.protocol_config.request_body_mode = head.protocol_config.response_body_mode = mode
    if not body:
        return [head]
    return [head, ProcessingRequest(request_body=HttpBody(body=body, end_of_stream=True))]


KINDS: dict[str, tuple[list[ProcessingRequest], int]] = {
    "head": (_request(b""), 0),
    "body of 8 KiB": (_request(BODY), 0),
    "and 100 events": (_request(BODY), EVENTS),
}


async def _ask(stub: Any, messages: Sequence[ProcessingRequest], events: int) -> float:
    """Send a request and read a response; return the seconds until the destination is known."""
    call = stub.Process()
    began = time.perf_counter()
    try:
        for message in messages:
            call.send(message)
        answer = await call.read()
        known = time.perf_counter() - began
        if answer.WhichOneof("response") != "request_headers":
            raise SystemExit(f"not picked: {answer}")
        for _ in messages[1:]:
            await call.read()
        for _ in range(events):
            call.send(ProcessingRequest(response_body=HttpBody(body=EVENT)))
            await call.read()
    finally:
        call.cancel()
    return known


async def _measure_kind(
    stub: Any, pid: int, kind: str, options: argparse.Namespace
) -> dict[str, Any]:
    messages, events = KINDS[kind]
    left = max(1, options.requests // (10 if events else 1))
    count, seconds = left, list[float]()

    async def ask_some(number: int) -> None:
        for _ in range(number):
            seconds.append(await _ask(stub, messages, events))

    began = cpu_seconds(pid)
    share = -(-left // options.streams)
    await asyncio.gather(*(ask_some(share) for _ in range(options.streams)))
    count = share * options.streams
    used = (cpu_seconds(pid) - began) / count
    return {"kind": kind, "requests": count, "cpu": used, "seconds": percentile(seconds, 50)}


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print and return the cost of each kind of request."""
    results = []
    with tempfile.TemporaryDirectory() as directory:
        async with (
            LocalEtcd(Path(directory), durable=False) as etcd,
            Etcd(etcd.endpoints) as client,
        ):
            for number in range(FRONTENDS):
                one = Instance(id=f"frontend-{number}", role=ROLE_FRONTEND)
                one.http_address = f"10.0.0.{number + 1}:8000"
                await client.put(keys.instance("bench", one.id), keys.encode(one))
            port = free_port()
            settings = {
                "BATON_GRPC_PORT": str(port),
                "BATON_ETCD_ENDPOINTS": ",".join(etcd.endpoints),
                "BATON_ETCD_CLUSTER": "bench",
                "BATON_TELEMETRY_LOG_LEVEL": "error",
            }
            command = (sys.executable, "-m", "baton", "serve", "picker")
            async with (
                process(command, settings) as picker,
                Channel(f"127.0.0.1:{port}") as channel,
            ):
                stub = channel.stub(ExternalProcessorStub)
                await _wait_serving(stub)
                table = Table(("request", "<14"), ("us CPU", "6.0f"), ("ms", "6.2f"))
                for kind in KINDS:
                    result = await _measure_kind(stub, picker.pid, kind, options)
                    table.row(kind, result["cpu"] * 1e6, result["seconds"] * 1e3)
                    results.append(result)
    return results


async def _wait_serving(stub: Any) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await _ask(stub, KINDS["head"][0], 0)
                return
            except BatonError:
                await asyncio.sleep(0.1)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument("--requests", type=int, default=3000, help="of each kind; default: 3000")
    parser.add_argument("--streams", type=int, default=8, help="at the same time; default: 8")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--requests 16")
