"""What usage records cost a request: CPU of a frontend, and how long an answer's end is held up.

    python -m bench.usage.cost [--requests 20000] [--directory DIR] [--json FILE]

Each request begins and ends, as the frontend records it: two lines of the spool, written by a
thread, and brought to JSONL files by another one. All threads' CPU counts. `at once`: so many
requests begin in one turn of the event loop, and end together; one at a time is the worst case, for
each has two writes of its own. `held up`: from a request's end until its line is written, when its
client is told.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from baton.internal.v1 import cluster_pb2
from baton.prices import Price, PriceTable
from baton.settings import UsageSettings
from baton.stream_events import FinishReason
from baton.tenancy.principal import LOCAL
from baton.usage.recording import recording
from baton.v1 import common_pb2
from bench.harness import cli
from bench.harness.table import Table
from services.frontend.generation.metering import Metering
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.usage import RequestUsage
from services.frontend.models.model import Model
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest

AT_ONCE = (1, 8, 64)
PROMPT_TOKENS, OUTPUT_TOKENS = 500, 200


def request_of(number: int) -> ResolvedRequest:
    """Return a request as it runs, as far as usage is concerned."""
    card = cluster_pb2.ModelCard(name="org/model", weights_digest=bytes(32), context_tokens=8192)
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=f"req-{number:024x}", tenant="default", model="org/model"
        ),
        model=Model("org/model", cast(Any, None), (card,)),
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
    for _ in range(requests // at_once):
        arrived = time.monotonic()
        meters = [metering.begin(one, asked, arrived) for one in resolved]
        await asyncio.sleep(0)
        ended = time.monotonic()
        last = asyncio.get_running_loop().create_future()
        for meter in meters:
            if meter is None:
                raise RuntimeError("the spool is full: give it more room")
            meter.end(progress, "ok", None if meter is not meters[-1] else _setter(last))
        await last
        held.append(time.monotonic() - ended)
    return held


def _setter(future: "asyncio.Future[None]") -> Any:
    return lambda: future.set_result(None)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    table = Table(
        ("at once", "7"),
        ("us of CPU/request", "17.1f"),
        ("held up ms p50", "14.3f"),
        ("p99", "8.3f"),
        ("bytes/request", "13.0f"),
    )
    results: dict[str, Any] = {}
    prices = PriceTable({"org/model": Price(100, 50, 400)})
    for at_once in AT_ONCE:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            spool_path, files = Path(directory) / "spool", Path(directory) / "files"
            settings = UsageSettings(
                spool_path=spool_path, jsonl_path=files, spool_bytes=1024 * 1024 * 1024
            )
            async with recording(settings) as spool:
                if spool is None:
                    raise RuntimeError("usage is not recorded")
                metering = Metering(spool, prices, "frontend-0")
                await record(metering, options.requests // 10, at_once)
                began = time.process_time()
                held = sorted(await record(metering, options.requests, at_once))
                # What is delivered later costs as much as what was delivered meanwhile.
                await asyncio.sleep(2.0)
                used = time.process_time() - began
            done = len(held) * at_once
            size = sum(path.stat().st_size for path in files.iterdir())
        results[str(at_once)] = row = {
            "cpu_us": used / done * 1e6,
            "held_ms_p50": held[len(held) // 2] * 1e3,
            "held_ms_p99": held[len(held) * 99 // 100] * 1e3,
            "jsonl_bytes": size / (done + options.requests // 10),
        }
        table.row(at_once, *row.values())
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=20_000, help="default: 20000")
    parser.add_argument("--directory", type=Path, help="where the disk is; default: for temporary")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments)
