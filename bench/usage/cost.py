"""What usage records cost a request: CPU of a frontend, and how long an answer's end is held up.

    python -m bench.usage.cost [--requests 20000] [--directory DIR] [--json FILE]

Each request begins and ends, as the frontend records it: two lines of the spool, written by a
thread, and brought to JSONL files by another one. All threads' CPU counts, less that of the same
turns of the event loop without records. `at once`: so many requests begin in one turn, while those
of the turn before end. `alone` is the worst case: a request at a time that lasts 15 ms, so that
each of its lines is a write of its own. `held up`: from a request's end until its line is written,
when its client is told.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from baton.internal.v1 import cluster_pb2
from baton.request.prices import Price
from baton.request.stream_events import FinishReason
from baton.settings import UsageSettings
from baton.tenancy.directory.principal import LOCAL
from baton.usage.recording import recording
from baton.v1 import common_pb2
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from services.frontend.generation.accounting.metering import Metering, RequestMeter, cost_of
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.models.model import ServedModel
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest

ALONE = 0
AT_ONCE = (ALONE, 1, 8, 64)
ALONE_SECONDS = 0.015
"""A request alone lasts longer than its begin is kept for others to go with it."""
ALONE_SHARE = 0.025
"""Of the requests are made one by one: each takes its time."""
PRICE = Price(100, 50, 400)
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 200


def request_of(number: int) -> ResolvedRequest:
    """Return a request as it runs, as far as usage is concerned."""
    card = cluster_pb2.ModelCard(name="org/model", weights_digest=bytes(32), context_tokens=8192)
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=f"req-{number:024x}", tenant="default", model="org/model"
        ),
        model=ServedModel("org/model", cast(Any, None), (card,)),
        prompt=[1] * PROMPT_TOKENS,
        sampling=common_pb2.SamplingParams(),
        stop=(),
        n=1,
    )


def progress_of(arrived: float) -> RequestProgress:
    """Return what a request came to."""
    usage = RequestUsage(PROMPT_TOKENS, arrived)
    usage.first_token_at = arrived + 0.05
    output = SimpleNamespace(reason=FinishReason.LENGTH)
    return cast(
        RequestProgress,
        SimpleNamespace(usage=usage, outputs=[output], output_tokens=OUTPUT_TOKENS),
    )


async def record(metering: Metering, requests: int, at_once: int) -> list[float]:
    """Record requests; return how long the end of each was held up, in seconds."""
    asked = RequestRecord("http")
    asked.operation, asked.principal = "chat", LOCAL
    resolved = [request_of(number) for number in range(at_once)]
    progress = progress_of(time.monotonic())
    held: list[float] = []
    running: list[RequestMeter] = []
    for turn in range(-(-requests // at_once) + 1):
        arrived = time.monotonic()
        meters, running = running, []
        if turn * at_once < requests:
            running = begin_all(metering, resolved, asked, arrived)
        if meters:
            await end_all(meters, progress)
            held.append(time.monotonic() - arrived)
    return held


async def record_alone(metering: Metering, requests: int) -> list[float]:
    """Record requests of which only one runs at any time; return how long each end took."""
    asked = RequestRecord("http")
    asked.operation, asked.principal = "chat", LOCAL
    resolved, progress = [request_of(0)], progress_of(time.monotonic())
    held: list[float] = []
    for _ in range(requests):
        meters = begin_all(metering, resolved, asked, time.monotonic())
        await asyncio.sleep(ALONE_SECONDS)
        ended = time.monotonic()
        await end_all(meters, progress)
        held.append(time.monotonic() - ended)
    return held


def begin_all(
    metering: Metering, requests: list[ResolvedRequest], asked: RequestRecord, arrived: float
) -> list[RequestMeter]:
    meters = [metering.begin(one, asked, arrived) for one in requests]
    found = [one for one in meters if one is not None]
    if len(found) < len(meters):
        raise RuntimeError("the spool is full: give it more room")
    return found


async def end_all(meters: list[RequestMeter], progress: RequestProgress) -> None:
    """End requests, and return once the client of the last one may be told."""
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for meter in meters[:-1]:
        meter.end(progress, "ok", cost_of(progress, PRICE), _nothing)
    meters[-1].end(progress, "ok", cost_of(progress, PRICE), lambda: last.set_result(None))
    await last


def _nothing() -> None:
    """Tell a client."""


async def idle_seconds(requests: int, at_once: int) -> float:
    """Return the CPU of the same turns of the loop without a record."""
    began, loop = time.process_time(), asyncio.get_running_loop()
    for _ in range(requests if at_once == ALONE else -(-requests // at_once)):
        if at_once == ALONE:
            await asyncio.sleep(ALONE_SECONDS)
        told: asyncio.Future[None] = loop.create_future()
        loop.call_soon(told.set_result, None)
        await told
    return time.process_time() - began


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    table = Table(
        ("at once", ">7"),
        ("us of CPU/request", "17.1f"),
        ("held up ms p50", "14.3f"),
        ("p99", "8.3f"),
        ("bytes/request", "13.0f"),
    )
    results: dict[str, Any] = {}
    for at_once in AT_ONCE:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            spool_path, files = Path(directory) / "spool", Path(directory) / "files"
            settings = UsageSettings(
                spool_path=spool_path, jsonl_path=files, spool_bytes=1024 * 1024 * 1024
            )
            async with recording(settings) as spool:
                if spool is None:
                    raise RuntimeError("usage is not recorded")
                metering = Metering(spool, "frontend-0")
                alone = at_once == ALONE
                requests = int(options.requests * (ALONE_SHARE if alone else 1))
                requests -= requests % (at_once or 1)
                await record(metering, 640, at_once or 1)  # warm
                idle = await idle_seconds(requests, at_once)
                began = time.process_time()
                asking = (
                    record_alone(metering, requests)
                    if alone
                    else record(metering, requests, at_once)
                )
                held = await asking
                # What is delivered later costs as much as what was delivered meanwhile.
                await asyncio.sleep(2.0)
                used = time.process_time() - began - idle
            size = sum(path.stat().st_size for path in files.iterdir())
        results["alone" if alone else str(at_once)] = row = {
            "cpu_us": used / requests * 1e6,
            "held_ms_p50": percentile(held, 50) * 1e3,
            "held_ms_p99": percentile(held, 99) * 1e3,
            "jsonl_bytes": size / (requests + 640),
        }
        table.row("alone" if alone else str(at_once), *row.values())
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=20_000, help="default: 20000")
    parser.add_argument("--directory", type=Path, help="where the disk is; default: for temporary")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--requests 100")
