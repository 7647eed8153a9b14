"""Many streams open at once on one frontend process: `python -m bench.serving.open_streams`.

The simulated engine gives every stream one token per step. Streams are opened over a while. Once
all of them are open, the memory and the CPU of the frontend are read over some steps. Prints what a
stream takes, what a token costs then, and how many streams failed.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from baton.engine.testing.random_checkpoint import write_random_checkpoint
from bench.harness.processes import Member, Processes, cpu_seconds, rss_bytes
from bench.serving.load_generator import Load, Seen, over_http
from bench.serving.token_path import MODEL, SETTINGS

SPARE = 1000


@dataclass
class Result:
    """What was seen with all streams open."""

    streams: int
    most_open: int
    errors: dict[str, int]
    bytes_per_stream: float
    """Resident memory that the frontend has more than before, per stream."""
    frontend_us_per_token: float
    tokens_per_second: float
    window_seconds: float


def members(model: Path, streams: int, step: float) -> list[Member]:
    worker = {
        "BATON_ROLE": "combined",
        "BATON_ENGINE_MODEL": str(model),
        "BATON_ENGINE_MAX_RUNNING": str(streams + SPARE),
        "BATON_ENGINE_MAX_WAITING": str(streams + SPARE),
        "BATON_ENGINE_CHUNK_TOKENS": "200000",
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(step),
        "BATON_ENGINE_SIM_DECODE_SEQUENCE_SECONDS": "0",
    }
    front = {
        "BATON_MODELS": f"{MODEL}={model}",
        "BATON_GRPC_MAX_CONCURRENT": str(streams + SPARE),
        "BATON_DRAIN_SECONDS": "1",
    }
    return [
        Member("kvstore-0", "kvstore"),
        Member("router-0", "router"),
        Member("combined-0", "decode", worker),
        Member("frontend-0", "frontend", front),
    ]


async def measure(arguments: argparse.Namespace, directory: Path) -> Result:
    model = write_random_checkpoint(directory / MODEL, vocab=8192, layers=1)
    streams, step = arguments.streams, arguments.step
    async with Processes(directory, members(model, streams, step), SETTINGS) as cluster:
        front = cluster.running["frontend-0"]
        load = Load(
            model=MODEL,
            prompts=[f"say {number} things" for number in range(streams)],
            url=f"http://{front.instance.http_address}",
            output_tokens=2000,  # none ends before it is measured
            concurrency=1,
            requests=1,
        )
        seen = Seen()
        first = Load(**{**asdict(load), "output_tokens": 2})
        await over_http(first, iter([0, None]).__next__, Seen())  # what the first request loads
        before = rss_bytes(front.pid)
        load = Load(**{**asdict(load), "concurrency": streams, "ramp_seconds": arguments.ramp})
        made = iter(range(streams))
        clients = asyncio.create_task(over_http(load, lambda: next(made, None), seen))
        limit = time.monotonic() + 4 * arguments.ramp + 60
        while seen.most_open + seen.errors.total() < streams and time.monotonic() < limit:
            await asyncio.sleep(0.2)
        await asyncio.sleep(2 * step)
        memory = rss_bytes(front.pid) - before
        began, events, cpu = time.monotonic(), seen.events, cpu_seconds(front.pid)
        await asyncio.sleep(arguments.window)
        seconds = time.monotonic() - began
        events, cpu = seen.events - events, cpu_seconds(front.pid) - cpu
        memory = max(memory, rss_bytes(front.pid) - before)
        most_open = seen.most_open
        clients.cancel()
        await asyncio.wait([clients])
        return Result(
            streams,
            most_open,
            dict(seen.errors),
            memory / max(1, most_open),
            cpu / max(1, events) * 1e6,
            events / seconds,
            seconds,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--step", type=float, default=1.0, help="seconds per engine step")
    parser.add_argument("--ramp", type=float, default=30.0, help="seconds to open them in")
    parser.add_argument("--window", type=float, default=15.0, help="seconds to measure for")
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as directory:
        result = uvloop.run(measure(arguments, Path(directory)))
    print(
        f"{result.most_open} of {result.streams} streams open at once, "
        f"errors: {result.errors or 'none'}\n"
        f"{result.bytes_per_stream / 1024:.1f} KiB of the frontend's memory per stream\n"
        f"{result.frontend_us_per_token:.1f} us of the frontend's CPU per token, "
        f"at {result.tokens_per_second:.0f} tokens/s"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(result), indent=1) + "\n")


if __name__ == "__main__":
    main()
