"""A load generator for streamed completions: `python -m bench.serving.load_generator --url http://host:port`.

Keeps a number of requests in flight, over HTTP (chat or text completions as server-sent events) or
over Baton's gRPC API, from one or several processes. Requests are built beforehand and events are
counted by a marker and not parsed, so that little of the machine goes to the client. Prints JSON.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

try:
    import uvloop
except ImportError:
    uvloop = None

MARKER = b"data: {"
"""What begins each event of a stream."""
HELD_GAPS = 200_000


@dataclass(frozen=True)
class Load:
    """What is asked, how often, and how many at once."""

    model: str
    prompts: Sequence[str]
    url: str = ""
    """`http://host:port`, or empty."""
    grpc: str = ""
    """`host:port`, where not over HTTP."""
    api: str = "chat"
    """`chat` or `completions`."""
    output_tokens: int = 16
    concurrency: int = 16
    requests: int = 1000
    seconds: float = 0.0
    """No request begins later than this; 0: all `requests` are made."""
    ramp_seconds: float = 0.0
    """The first requests are spread over this time."""
    timeout_seconds: float = 120.0
    seed: int = 1


@dataclass
class Seen:
    """What clients saw. Times are in seconds."""

    first: list[float] = field(default_factory=list)
    """From sending a request to its first event."""
    whole: list[float] = field(default_factory=list)
    """To its last event."""
    gaps: list[float] = field(default_factory=list)
    """Between two reads of one stream that brought events."""
    events: int = 0
    most_open: int = 0
    """Streams that had an event and no end, at once."""
    errors: Counter[str] = field(default_factory=Counter)
    sample: str = ""
    """What the first error said."""
    begun: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0

    def merge(self, other: "Seen") -> None:
        self.first += other.first
        self.whole += other.whole
        self.gaps += other.gaps
        self.events += other.events
        self.most_open += other.most_open
        self.errors += other.errors
        self.sample = self.sample or other.sample
        self.begun = min(self.begun or other.begun, other.begun)
        self.ended = max(self.ended, other.ended)
        self.cpu += other.cpu


class Counts:
    """Streams that are open now, and the most that ever were."""

    def __init__(self, seen: Seen) -> None:
        self.open = 0
        self.seen = seen

    def began(self) -> None:
        self.open += 1
        self.seen.most_open = max(self.seen.most_open, self.open)


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.closed = False
        self.answer: asyncio.Future[str] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._finish("connection lost")

    def ask(self, request: bytes) -> "asyncio.Future[str]":
        self._head, self._tail, self._done = b"", b"", False
        self._in_head = True
        self.status, self.events, self.body = 0, 0, b""
        self.first_at = self.last_at = 0.0
        self._length = -1
        self._got = 0
        self.answer = asyncio.get_running_loop().create_future()
        self.asked_at = time.perf_counter()
        self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done():
            return
        if self._in_head:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            self._in_head = False
            self.status = int(head[9:12])
            at = head.find(b"content-length:")
            self._length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else -1
        if self.status != 200:
            self.body += data[:300]
        self._got += len(data)
        self._count(data)
        window = self._tail
        if (
            self._length < 0 and window.endswith(b"0\r\n\r\n") and b"[DONE]" in window
        ) or 0 <= self._length <= self._got:
            self._finish("ok" if self.status == 200 else f"HTTP {self.status}")

    def _count(self, data: bytes) -> None:
        # What begins before `data` and ends in it counts too; nothing counts twice.
        edge = len(MARKER) - 1
        new = (self._tail[-edge:] + data).count(MARKER)
        self._tail = (self._tail + data)[-64:]
        if not new:
            return
        now = time.perf_counter()
        if self.events:
            gaps = self._counts.seen.gaps
            if len(gaps) < HELD_GAPS:
                gaps.append(now - self.last_at)
        else:
            self.first_at = now
            self._counts.began()
        self.last_at = now
        self.events += new
        self._counts.seen.events += new

    def _finish(self, outcome: str) -> None:
        if self.answer is not None and not self.answer.done():
            if self.events:
                self._counts.open -= 1
            self.answer.set_result(outcome)


def http_requests(load: Load) -> list[bytes]:
    """The bytes of each request."""
    path = "/v1/chat/completions" if load.api == "chat" else "/v1/completions"
    made = []
    for prompt in load.prompts:
        body: dict[str, Any] = {
            "model": load.model,
            "stream": True,
            "max_tokens": load.output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        if load.api == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {urlparse(load.url).netloc}\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        made.append(head.encode() + data)
    return made


async def over_http(load: Load, next_request: Callable[[], int | None], seen: Seen) -> None:
    """Make requests one after the other on each of `concurrency` connections."""
    target = urlparse(load.url)
    loop = asyncio.get_running_loop()
    requests = http_requests(load)
    counts = Counts(seen)

    async def client(slot: int) -> None:
        await asyncio.sleep(load.ramp_seconds * slot / load.concurrency)
        connection: Connection | None = None
        while (number := next_request()) is not None:
            try:
                async with asyncio.timeout(load.timeout_seconds):
                    if connection is None or connection.closed:
                        _, connection = await loop.create_connection(
                            lambda: Connection(counts), target.hostname, target.port
                        )
                    outcome = await connection.ask(requests[number % len(requests)])
            except (OSError, TimeoutError) as error:
                outcome = type(error).__name__
                if connection is not None:
                    connection.transport.abort()
            if outcome == "ok" and connection is not None and connection.events:
                seen.first.append(connection.first_at - connection.asked_at)
                seen.whole.append(connection.last_at - connection.asked_at)
            else:
                seen.errors[outcome] += 1
                if connection is not None and not seen.sample:
                    seen.sample = connection.body[:300].decode(errors="replace")
        if connection is not None:
            connection.transport.close()

    await asyncio.gather(*(client(slot) for slot in range(load.concurrency)))


async def over_grpc(load: Load, next_request: Callable[[], int | None], seen: Seen) -> None:
    """The same over gRPC, on one channel."""
    import grpc

    from baton.rpc.channels import open_channel
    from baton.v1 import inference_pb2
    from baton.v1.inference_pb2_grpc import InferenceServiceStub

    channel = open_channel(load.grpc)
    stub: Any = InferenceServiceStub(channel)
    counts = Counts(seen)
    requests = []
    for prompt in load.prompts:
        request = inference_pb2.ChatRequest(
            messages=[inference_pb2.ChatMessage(role="user", content=prompt)]
        )
        request.context.model = load.model
        request.sampling.temperature = 0.0
        request.stopping.max_tokens = load.output_tokens
        request.stopping.ignore_eos = True
        requests.append(request)

    async def client(slot: int) -> None:
        await asyncio.sleep(load.ramp_seconds * slot / load.concurrency)
        while (number := next_request()) is not None:
            asked = time.perf_counter()
            first = last = 0.0
            call = stub.Chat(requests[number % len(requests)], timeout=load.timeout_seconds)
            try:
                while (event := await call.read()) is not grpc.aio.EOF:
                    if event.HasField("delta"):
                        now = time.perf_counter()
                        if not first:
                            first = now
                            counts.began()
                        elif len(seen.gaps) < HELD_GAPS:
                            seen.gaps.append(now - last)
                        last = now
                        seen.events += 1
                seen.first.append(first - asked)
                seen.whole.append(last - asked)
            except grpc.aio.AioRpcError as error:
                seen.errors[error.code().name] += 1
                seen.sample = seen.sample or str(error.details())[:300]
            finally:
                call.cancel()
                counts.open -= bool(first)

    try:
        await asyncio.gather(*(client(slot) for slot in range(load.concurrency)))
    finally:
        await channel.close(None)


def run_here(load: Load, quota: int) -> Seen:
    """Make `quota` requests from this process."""
    seen = Seen()
    made = 0

    def next_request() -> int | None:
        nonlocal made
        late = load.seconds and time.perf_counter() - seen.begun > load.seconds
        if made >= quota or late:
            return None
        made += 1
        return made - 1

    async def go() -> None:
        seen.begun = time.perf_counter()
        await (over_grpc if load.grpc else over_http)(load, next_request, seen)
        seen.ended = time.perf_counter()

    (uvloop.run if uvloop is not None else asyncio.run)(go())
    seen.cpu = time.process_time()
    return seen


def _child(load: Load, quota: int, results: Any) -> None:
    results.put(run_here(load, quota))


def run(load: Load, processes: int = 1) -> Seen:
    """Make a load from so many other processes; what all of them saw."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = []
    draw = random.Random(load.seed)
    for index in range(processes):
        prompts = draw.sample(list(load.prompts), len(load.prompts))
        concurrency = load.concurrency // processes + (index < load.concurrency % processes)
        quota = load.requests // processes + (index < load.requests % processes)
        part = Load(**{**asdict(load), "concurrency": concurrency, "prompts": prompts})
        children.append(context.Process(target=_child, args=(part, quota, results)))
    for child in children:
        child.start()
    seen = Seen()
    try:
        for _ in children:
            seen.merge(results.get(timeout=load.timeout_seconds + load.seconds + 600))
    finally:
        for child in children:
            child.join(10)
            child.kill()
    return seen


def percentile(values: Sequence[float], share: float) -> float | None:
    """A percentile in milliseconds; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 3)


def report(load: Load, seen: Seen) -> dict[str, Any]:
    """What is printed."""
    seconds = max(1e-9, seen.ended - seen.begun)
    done = len(seen.first)
    return {
        "surface": "grpc" if load.grpc else "http",
        "concurrency": load.concurrency,
        "output_tokens": load.output_tokens,
        "ok": done,
        "errors": dict(seen.errors),
        "error_sample": seen.sample,
        "seconds": round(seconds, 3),
        "requests_per_second": round(done / seconds, 1),
        "tokens_per_second": round(done * load.output_tokens / seconds, 1),
        "events_per_request": round(seen.events / max(1, done), 2),
        "ttft_ms": {"p50": percentile(seen.first, 0.5), "p99": percentile(seen.first, 0.99)},
        "itl_ms": {"p50": percentile(seen.gaps, 0.5), "p99": percentile(seen.gaps, 0.99)},
        "whole_ms": {"p50": percentile(seen.whole, 0.5), "p99": percentile(seen.whole, 0.99)},
        "most_open": seen.most_open,
        "client_cpu_seconds": round(seen.cpu, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--grpc", default="", help="host:port; speaks gRPC instead of HTTP")
    parser.add_argument("--model", required=True)
    parser.add_argument("--api", choices=["chat", "completions"], default="chat")
    parser.add_argument("--prompts", type=Path, help="a JSON list of texts")
    parser.add_argument("--words", type=int, default=64, help="of each prompt, without --prompts")
    parser.add_argument("--output-tokens", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(1)
    prompts = (
        json.loads(arguments.prompts.read_text())
        if arguments.prompts
        else [
            " ".join(f"w{draw.randrange(2000)}" for _ in range(arguments.words)) for _ in range(512)
        ]
    )
    load = Load(
        model=arguments.model,
        prompts=prompts,
        url=arguments.url,
        grpc=arguments.grpc,
        api=arguments.api,
        output_tokens=arguments.output_tokens,
        concurrency=arguments.concurrency,
        requests=arguments.requests,
        seconds=arguments.seconds,
    )
    seen = run(load, arguments.processes)
    json.dump(report(load, seen), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
