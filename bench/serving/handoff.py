"""Cost of a KV handover: from the prompt's last chunk to decode's first step.

One prefill and one decode worker, a core (or half of them) each. Requests of 2,000 tokens, one
after the other, on idle workers or while other clients stream (`--streams 8`). Times within the
workers come from their OpenTelemetry spans, which this program collects; the others are measured by
the client.

    python -m bench.serving.handoff [--engine vllm] [--requests 8] [--streams 0] [--json FILE]
"""

import argparse
import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from baton.client import AsyncClient, Delta, Started
from bench.harness import cli
from bench.harness.checkpoints import SIZES, VOCAB, random_llama
from bench.harness.cluster import Cluster, cluster
from bench.harness.table import Table

EXPORT_SECONDS = 15
"""Time in which the spans of a request have arrived."""
ROWS = {
    "first": "time to first token",
    "second": "time to second token",
    "committed": "last chunk computed → its KV in the store",
    "in_place": "→ in the decode worker's pages",
    "started": "→ decode's first step begins",
    "handoff": "hand-off: these three together",
    "step": "decode's first step",
    "put_cpu": "copying and hashing in the prefill worker",
    "get_cpu": "copying and hashing in the decode worker",
}
Measured = dict[str, float]


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OpenTelemetry collector that keeps workers' spans by request and name."""

    def __init__(self) -> None:
        self.spans: defaultdict[str, dict[str, Any]] = defaultdict(dict)

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's own
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    for attribute in span.attributes:
                        if attribute.key == "baton.request_id":
                            self.spans[attribute.value.string_value][span.name] = span
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, str]]:
    collector = Collector()
    server = grpc.aio.server()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Asker:
    """Sends requests with random prompts."""

    def __init__(self, client: AsyncClient, up: Cluster) -> None:
        self._client = client
        self._model = up.model
        self._draw = random.Random(1)

    async def ask(self, tokens: int, output: int) -> tuple[str, list[float]]:
        """Return the request's id, and the times of its tokens in seconds from sending."""
        prompt = [self._draw.randrange(256, VOCAB) for _ in range(tokens)]
        request_id, times = "", []
        began = time.perf_counter()
        stream = self._client.generate(
            prompt, model=self._model, max_tokens=output, ignore_eos=True, temperature=0
        )
        async with stream:
            async for event in stream:
                if isinstance(event, Started):
                    request_id = event.request_id
                elif isinstance(event, Delta):
                    times += [time.perf_counter() - began] * len(event.token_ids)
        return request_id, times

    async def stream_on(self) -> None:
        while True:
            await self.ask(128, 256)


async def ask_all(options: argparse.Namespace) -> list[Measured]:
    """Send requests one after the other; return the figures of each."""
    async with collecting() as (collector, endpoint):
        settings = {
            "BATON_TELEMETRY_OTLP_ENDPOINT": endpoint,
            "BATON_PLACEMENT_DISAGGREGATION": "always",
            "BATON_ENGINE_CHUNK_TOKENS": str(options.chunk),
            "BATON_ENGINE_KV_BYTES": options.kv,
            "BATON_STORE_ARENA_BYTES": options.kv,
        }
        workers = (f"--engine={options.engine}", "--prefill=1", "--decode=1", "--pin")
        model = random_llama(options.size)
        async with (
            cluster(*workers, f"--model={model}", settings=settings) as up,
            AsyncClient(up.grpc, retries=0) as client,
        ):
            asker = Asker(client, up)
            await asker.ask(options.tokens, 4)
            others = [asyncio.create_task(asker.stream_on()) for _ in range(options.streams)]
            try:
                await asyncio.sleep(3 if others else 0.5)
                answers = []
                for _ in range(options.requests):
                    answers.append(await asker.ask(options.tokens, 4))
                    await asyncio.sleep(0.3)
            finally:
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
            async with asyncio.timeout(EXPORT_SECONDS):
                while not all(
                    {"prefill", "prepare"} <= set(collector.spans[i]) for i, _ in answers
                ):
                    await asyncio.sleep(0.1)
    return [measured(collector.spans[request_id], times) for request_id, times in answers]


def measured(spans: dict[str, Any], times: list[float]) -> Measured:
    """Return the figures of one request, in seconds."""
    prefill, prepare = spans["prefill"], spans["prepare"]
    read = {event.name: event.time_unix_nano for event in prefill.events}
    wrote = {event.name: event.time_unix_nano for event in prepare.events}
    computed, started = read["first_token"], wrote["started"]
    # If the last blocks are in place before publishing is reported, only the sum is known.
    committed = min(read["kv.published"], wrote["kv.in_place"])
    marks = [computed, committed, wrote["kv.in_place"], started, wrote["first_token"]]
    names = ("committed", "in_place", "started", "step")
    return {
        "first": times[0],
        "second": times[1],
        **{name: (b - a) / 1e9 for name, a, b in zip(names, marks, marks[1:], strict=False)},
        "handoff": (started - computed) / 1e9,
        "put_cpu": _attribute(prefill, "baton.copy_cpu_seconds"),
        "get_cpu": _attribute(prepare, "baton.copy_cpu_seconds"),
        "bytes": _attribute(prepare, "baton.fetched_bytes"),
    }


def _attribute(span: Any, name: str) -> float:
    for attribute in span.attributes:
        if attribute.key == name:
            return float(attribute.value.double_value or attribute.value.int_value)
    return 0.0


def show(rows: list[Measured]) -> None:
    """Print medians and maxima."""
    table = Table(("milliseconds", "<44"), ("median", "8.1f"), ("worst", "8.1f"))
    for name, words in ROWS.items():
        values = [row[name] * 1e3 for row in rows]
        table.row(words, statistics.median(values), max(values))

    def share(part: str, whole: str) -> str:
        return f"{statistics.median(row[part] / row[whole] for row in rows):.1%}"

    megabytes = statistics.median(row["bytes"] for row in rows) / 1e6
    print(
        f"{megabytes:.0f} MB of KV per prompt\n"
        f"hand-off, share of the time to the second token: {share('handoff', 'second')}\n"
        f"copying and hashing, share of the time to the first: {share('put_cpu', 'first')}"
    )


async def measure(options: argparse.Namespace) -> list[Measured]:
    rows = await ask_all(options)
    print(
        f"{options.requests} prompts of {options.tokens} tokens, {options.streams} streams beside"
    )
    show(rows)
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("sim", "torch", "vllm"), default="torch")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--streams", type=int, default=0, help="number of streaming clients")
    parser.add_argument("--tokens", type=int, default=2000, help="tokens per prompt")
    parser.add_argument("--chunk", type=int, default=512, help="tokens per step")
    parser.add_argument("--size", choices=SIZES, default="64M", help="size of the model")
    parser.add_argument("--kv", default="1GiB", help="KV memory of each worker and the store")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--engine sim --requests 2 --tokens 200 --size 6M --kv 32MiB",
    )
