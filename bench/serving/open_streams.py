"""Many open streams on one frontend process: `python -m bench.serving.open_streams`.

The simulated engine gives every stream one token per step. Streams are opened over a period: each
on its own connection over HTTP, all on one over gRPC. Once all of them are open, the memory and the
CPU of the frontend are read over some steps. Prints the memory per stream, the CPU per token, and
the number of failed streams.
"""

import argparse
import asyncio
import resource
import time
from dataclasses import asdict, dataclass, replace

from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import cpu_seconds, rss_bytes
from bench.serving.load.over_grpc import run_grpc
from bench.serving.load.over_http import run_http
from bench.serving.load.streams import Load, Observed
from bench.serving.token_path import SETTINGS

SPARE = 1000
RUN = {"http": run_http, "grpc": run_grpc}


@dataclass
class Result:
    """The results with all streams open."""

    streams: int
    most_open: int
    errors: dict[str, int]
    error: str
    """The first error's message."""
    bytes_per_stream: float
    """Growth of the frontend's resident memory per stream."""
    frontend_us_per_token: float
    tokens_per_second: float
    window_seconds: float


def settings(options: argparse.Namespace) -> dict[str, str]:
    most = str(options.streams + SPARE)
    return {
        **SETTINGS,
        "BATON_ENGINE_MAX_RUNNING": most,
        "BATON_ENGINE_MAX_WAITING": most,
        "BATON_ENGINE_CHUNK_TOKENS": "200000",
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(options.step),
        "BATON_ENGINE_SIM_DECODE_SEQUENCE_SECONDS": "0",
        "BATON_ENGINE_KV_BYTES": str(options.streams * 128 * 1024),
        "BATON_LIMITS_MAX_REQUESTS": most,
        "BATON_GRPC_MAX_CONCURRENT": most,
        "BATON_GRPC_MAX_STREAMS_PER_CONNECTION": most,
        "BATON_DRAIN_SECONDS": "1",
    }


async def watch(up: Cluster, options: argparse.Namespace) -> Result:
    """Open all streams, and read the frontend's memory and CPU while they run."""
    front = up.pids()["frontend-0"]
    load = Load(
        model=up.model,
        prompts=[f"say {number} things" for number in range(options.streams)],
        http=up.http,
        grpc=up.grpc,
        output_tokens=2000,  # no stream ends before the measurement
        concurrency=options.streams,
        ramp_seconds=options.ramp,
    )
    one = replace(load, output_tokens=2, concurrency=1, ramp_seconds=0)
    run = RUN[options.surface]
    await run(one, iter([0, None]).__next__, Observed())  # modules that the first request loads
    before = rss_bytes(front)
    made = iter(range(options.streams))
    seen = Observed()
    clients = asyncio.create_task(run(load, lambda: next(made, None), seen))
    limit = time.monotonic() + 4 * options.ramp + 60
    while seen.most_open + seen.errors.total() < options.streams and time.monotonic() < limit:
        await asyncio.sleep(0.2)
    await asyncio.sleep(2 * options.step)
    memory = rss_bytes(front) - before
    began, events, cpu = time.monotonic(), seen.events, cpu_seconds(front)
    await asyncio.sleep(options.window)
    seconds = time.monotonic() - began
    events, cpu = seen.events - events, cpu_seconds(front) - cpu
    memory = max(memory, rss_bytes(front) - before)
    most_open = seen.most_open
    clients.cancel()
    await asyncio.wait([clients])
    return Result(
        options.streams,
        most_open,
        dict(seen.errors),
        seen.sample,
        memory / max(1, most_open),
        cpu / max(1, events) * 1e6,
        events / seconds,
        seconds,
    )


async def measure(options: argparse.Namespace) -> dict[str, object]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    workers = ("--prefill=0", "--decode=0", "--combined=1", "--engine=sim")
    model = tokenizer_only("open-streams")
    async with cluster(*workers, f"--model={model}", settings=settings(options)) as up:
        result = await watch(up, options)
    print(
        f"{result.most_open} of {result.streams} streams open at once, "
        f"errors: {result.errors or 'none'}"
        f"{result.error and f' ({result.error})'}\n"
        f"{result.bytes_per_stream / 1024:.1f} KiB of the frontend's memory per stream\n"
        f"{result.frontend_us_per_token:.1f} us of the frontend's CPU per token, "
        f"at {result.tokens_per_second:.0f} tokens/s"
    )
    return asdict(result)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--surface", choices=RUN, default="http")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--step", type=float, default=1.0, help="seconds per engine step")
    parser.add_argument("--ramp", type=float, default=30.0, help="seconds to open them in")
    parser.add_argument("--window", type=float, default=15.0, help="seconds to measure for")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--streams 20 --step 0.2 --ramp 0.5 --window 1")
