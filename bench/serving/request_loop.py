"""CPU of a request in the frontend's Python alone: `python -m bench.serving.request_loop`.

64 clients send requests at once over real HTTP connections without sockets, are placed by a router
and answered by a worker that are this program, and send again. Prints the CPU per request of 8
tokens: until the last of the 64 has been started at the worker, and in total. Other work of the
machine has little influence. `--layers` prints instead how many functions a request calls, by
folder: a figure without noise.
"""

import argparse
import asyncio
import gc
import io
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from baton.cluster.tenants import Salts
from baton.engine.events import SampledTokens
from baton.internal.v1 import cluster_pb2, router_pb2, worker_pb2
from baton.process.lifecycle import GARBAGE_THRESHOLD
from baton.rpc.protocol import VERSION
from baton.settings import FrontendSettings
from baton.telemetry import logs
from baton.worker.wire.step_tokens import StepTokens
from baton.worker.wire.tokenizer_files import TokenizerFiles
from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from bench.harness.layers import counted_calls
from bench.harness.profile import profiled
from bench.harness.table import Table
from bench.serving.token_loop import DetachedConnection
from bench.serving.token_path import prompts
from services.frontend.access.authenticator import NoAuthentication
from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.generation.assigned.suspects import Suspects
from services.frontend.generation.factory import GenerationFactory
from services.frontend.generation.inference import Inference
from services.frontend.http.middleware import RequestMiddleware
from services.frontend.http.protocol.connection import HttpServerConnection
from services.frontend.models.registry import Registry
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.input.prepare import ResponsePreparer
from services.frontend.openai.responses.input.sealing import ItemSeals
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.placement.placement import PlacementFinder, Routers
from services.frontend.placement.query_times import QueryTimes
from services.frontend.placement.router_client import PlacementReply
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.claims import Claims
from services.frontend.routes import route_table, routed_app
from services.frontend.text.tokenizer import Tokenizer, TokenizerThreads
from services.frontend.workers.workers import Workers

CLIENTS = 64
TOKENS = 8


class KnownSalts(Salts):
    """Known salts of the tenant."""

    async def get(self, tenant: str) -> bytes:
        del tenant
        return bytes(32)


class OneWorker(Workers):
    """The one worker, which never fails."""

    lost: Mapping[str, str] = {}

    def __init__(self, connection: DetachedConnection) -> None:
        self._connection = connection

    def usable(self, instance: cluster_pb2.Instance) -> bool:
        del instance
        return True

    def get(self, target: router_pb2.Target) -> DetachedConnection:
        del target
        return self._connection

    def find_out_if_died(self, target: router_pb2.Target, tell: Callable[[bool], None]) -> None:
        del target
        tell(False)


class Router(Routers):
    """Answers each query in a later turn of the loop, like data from a socket."""

    def __init__(self, target: router_pb2.Target) -> None:
        self._target = target

    async def place(self, query: router_pb2.PlaceQuery, times: QueryTimes) -> PlacementReply:
        times.fill_in(query)
        query.SerializeToString()
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_soon(answer.set_result, None)
        await answer
        return PlacementReply(router_pb2.Placement(decode=self._target), None, "router", 0.0)


class Transport(asyncio.Transport):
    """A client's socket: detects the end of a response, and discards it."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    def write(self, data: Any) -> None:
        self.ended += data.endswith(b"0\r\n\r\n")

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Nowhere(io.StringIO):
    """Discards log lines."""

    def write(self, text: str) -> int:
        return len(text)


class Frontend:
    """A frontend between connections and a worker that are both this program."""

    def __init__(self, worker: DetachedConnection) -> None:
        settings = FrontendSettings()
        name = "request-loop"
        files = TokenizerFiles.read(tokenizer_only(name))
        card = cluster_pb2.ModelCard(
            name=name, context_tokens=4096, vocab_tokens=8192, block_tokens=16,
            layout_id=bytes(16), weights_digest=bytes(32), tokenizer_digest=bytes(32),
        )  # fmt: skip
        registry = Registry(lambda _: True)
        registry.set_cards([card])
        registry.add_tokenizer(card.tokenizer_digest, Tokenizer.load(files))
        instances: Mapping[str, cluster_pb2.Instance] = {}
        workers, salts = OneWorker(worker), KnownSalts()
        finder = PlacementFinder(Router(worker.target), workers, lambda: instances)
        waiting = WorkerWaitQueue(settings.limits)
        threads, suspects = TokenizerThreads(1), Suspects()
        factory = GenerationFactory(
            workers, finder, waiting, suspects, Claims(), salts, threads, settings
        )
        inference = Inference(registry, factory, waiting, suspects, threads, settings)
        handlers = Handlers(inference, settings.http, settings.limits)
        organization = OrganizationRoutes(None, settings.http)
        most = settings.limits.max_messages
        preparer = ResponsePreparer(ItemSeals(salts), None, most, unknown=False)
        responses = ResponsesHandlers(inference, settings.http, settings.limits, preparer)
        managed = ConversationHandlers(
            ConversationOperations(None, ItemSeals(salts)),
            responses,
            settings.http,
            settings.limits,
        )
        completions = StoredCompletions(None, settings.http, settings.limits)
        stored = StoredResponses(None)
        compact = CompactHandler(inference, settings.http, settings.limits, preparer)
        hooks = WebhookHandlers(None, settings.http, settings.limits)
        table = route_table(
            handlers,
            responses,
            compact,
            stored,
            managed,
            completions,
            FileHandlers(None),
            BatchHandlers(None, None, settings.http, settings.limits),
            hooks,
            organization,
            metrics=False,
        )
        app = RequestMiddleware(routed_app(table, NoAuthentication(), inference))

        def refuse(error: Exception) -> bytes:
            raise error

        kind = HttpServerConnection.limited(refuse, settings.http, settings.limits.stall_seconds)
        config = uvicorn.Config(
            app, http=kind, ws="none", log_config=None, access_log=False, proxy_headers=False
        )
        config.load()
        self.transports = [Transport() for _ in range(CLIENTS)]
        self.connections = [kind(config, ServerState(), {}) for _ in range(CLIENTS)]
        for connection, transport in zip(self.connections, self.transports, strict=True):
            connection.connection_made(transport)


def bodies() -> list[bytes]:
    """Return the requests of all clients."""
    made = []
    for text in prompts(tokenizer_only("request-loop"), CLIENTS):
        asked = {
            "model": "request-loop",
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "max_tokens": TOKENS,
            "temperature": 0.0,
            "ignore_eos": True,
        }
        body = json.dumps(asked).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8000\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def steps(stream_ids: list[int]) -> list[bytes]:
    """Return an output of all streams as a worker sends it: the last step ends them."""
    messages = []
    for position in range(TOKENS):
        step = StepTokens()
        for stream_id in stream_ids:
            token_id = (stream_id * 97 + position * 31) % 8000
            step.add(stream_id, SampledTokens(stream_id, 0, position, (token_id,)))
        messages.append([step.frame(VERSION)])
    for stream_id in stream_ids:
        finished = worker_pb2.StreamFinished(
            stream_id=stream_id, reasons=[worker_pb2.END_REASON_LENGTH]
        )
        messages[-1].append(worker_pb2.FrameFromWorker(finished=finished))
    return [worker_pb2.RunResponse(frames=frames).SerializeToString() for frames in messages]


async def burst(
    frontend: Frontend, worker: DetachedConnection, requests: list[bytes]
) -> tuple[float, float]:
    """Let every client send once; return the CPU seconds to the last start, and after it."""
    known = len(worker.opened)
    ended = sum(transport.ended for transport in frontend.transports)
    began = time.process_time()
    for connection, request in zip(frontend.connections, requests, strict=True):
        connection.data_received(request)
    while len(worker.opened) < known + CLIENTS:
        await asyncio.sleep(0)
    started = time.process_time()
    messages = steps(worker.opened[known:])
    answered = time.process_time()
    for data in messages:
        worker.receive(worker_pb2.RunResponse.FromString(data))
        await asyncio.sleep(0)
    while sum(transport.ended for transport in frontend.transports) < ended + CLIENTS:
        await asyncio.sleep(0)
    return started - began, time.process_time() - answered


async def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    logging.disable()
    logs.configure("bench", "bench", log_format="json", stream=Nowhere(), for_good=True)
    worker = DetachedConnection()
    frontend, requests = Frontend(worker), bodies()
    await burst(frontend, worker, requests)
    gc.collect()  # as a process does once it serves
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
    if options.layers:
        return await layers(frontend, worker, requests)
    found = []
    for number in range(options.rounds):
        with profiled(options.profile):
            costs = [await burst(frontend, worker, requests) for _ in range(options.bursts)]
        start, rest = (min(part) / CLIENTS * 1e6 for part in zip(*costs, strict=True))
        found.append({"to_start_us": start, "us": start + rest})
        print(
            f"round {number + 1}: {start:.0f} us of CPU per request until it is started, "
            f"{start + rest:.0f} us in all",
            flush=True,
        )
    return found


async def layers(
    frontend: Frontend, worker: DetachedConnection, requests: list[bytes]
) -> list[dict[str, float]]:
    """Print the calls of a request by layer."""
    await burst(frontend, worker, requests)  # caches are full
    with counted_calls() as calls:
        await burst(frontend, worker, requests)
    rows = [row for row in calls.rows(CLIENTS) if not row[0].startswith("bench")]
    table = Table(("calls per request", "<32"), ("of Python", "9.1f"), ("of C", "9.1f"))
    for row in rows:
        table.row(*row)
    python, c = sum(row[1] for row in rows), sum(row[2] for row in rows)
    table.row("all", python, c)
    return [{"python_calls": python, "c_calls": c}]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bursts", type=int, default=30, help="bursts per round; default: 30")
    parser.add_argument("--layers", action="store_true", help="print calls by folder instead")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=5, smallest="--rounds 1 --bursts 3")
