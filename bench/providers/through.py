"""CPU per token of a provider through the frontend: `python -m bench.providers.through`.

An upstream streams tokens at an exact pace, to one client and to 64, directly and through the
frontend. Rows are the CPU of the process that reads: a bare asyncio socket with msgspec, which does
nothing but decode; HTTP clients; the frontend, which reads, accounts and writes the stream to a
client; with `--litellm PYTHON` LiteLLM's proxy. Every round has all rows in turn, and factors are
medians over rounds of the same run.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

from baton.cluster.etcd.local import free_port
from bench.harness import cli
from bench.harness.child import Helper, helper, log_path, process
from bench.harness.machine import cpu_seconds
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.providers.serving import Provided, provided

BARE = "bare"
READERS = {
    BARE: ("bare", "asyncio"),
    "bare, uvloop": ("bare", "uvloop"),
    "aiohttp": ("aiohttp", "asyncio"),
    "httpx2": ("httpx2", "asyncio"),
    "httpx": ("httpx", "asyncio"),
    "openai": ("openai", "asyncio"),
}


class PacedLoad(NamedTuple):
    """Streams at once, the model that they ask for, and the tokens of each."""

    streams: int
    model: str
    tokens: int


LOADS = (PacedLoad(1, "every-300us", 2000), PacedLoad(64, "every-20000us", 400))
MODELS = [load.model for load in LOADS]
_LITELLM_SECONDS = 180.0
_LITELLM_SETTINGS = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


@asynccontextmanager
async def litellm(python: Path, upstream: str) -> AsyncIterator[tuple[int, str]]:
    """Run LiteLLM's proxy until the exit; yield its pid and URL."""
    port = free_port()
    models = "".join(
        f"- model_name: {name}\n  litellm_params:\n    model: openai/{name}\n"
        f"    api_base: {upstream}\n    api_key: none\n"
        for name in MODELS
    )
    with (
        tempfile.TemporaryDirectory(prefix="baton-litellm-") as scratch,
        log_path("litellm").open("w") as log,
    ):
        config = Path(scratch) / "config.yaml"
        config.write_text(f"model_list:\n{models}litellm_settings:\n  telemetry: false\n")
        command = (
            python.with_name("litellm"),
            "--config",
            config,
            "--port",
            str(port),
            "--host",
            "127.0.0.1",
        )
        async with process(command, _LITELLM_SETTINGS, stdout=log.fileno(), stderr=log) as child:
            async with asyncio.timeout(_LITELLM_SECONDS):
                while not await asyncio.to_thread(_alive, port):
                    await asyncio.sleep(0.5)
            yield child.pid, f"http://127.0.0.1:{port}/v1"


def _alive(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2):
            return True
    except OSError:
        return False


async def row(
    reader: Helper, url: str, load: PacedLoad, options: argparse.Namespace, pid: int
) -> float:
    """Read the streams of a load; return the CPU of `pid` in µs per token."""
    few = max(10, int(load.tokens * options.share))
    job = {"url": url, "model": load.model, "streams": load.streams, "tokens": few, "rounds": 1}
    before = cpu_seconds(pid)
    seen = await reader.ask(job)
    used = cpu_seconds(pid) - before
    if seen["tokens"] != few * load.streams:
        raise SystemExit(f"{seen['tokens']} tokens came of {few * load.streams}")
    own: float = seen["cpu"] if pid == reader.pid else used
    return own / few / load.streams * 1e6


async def first_token(reader: Helper, url: str, options: argparse.Namespace) -> list[float]:
    """Return times to the first token of requests in a row, in ms."""
    count = max(5, int(200 * options.share))
    job = {"url": url, "model": LOADS[0].model, "streams": 1, "tokens": 1, "rounds": count}
    return [seconds * 1e3 for seconds in (await reader.ask(job))["first"]]


async def compare(
    at: Provided,
    readers: dict[str, Helper],
    options: argparse.Namespace,
    proxy: tuple[int, str] | None,
) -> dict[str, Any]:
    """Measure all rows; print and return them."""
    client = readers["bare, uvloop"]
    through = {"frontend": (at.frontend, at.url)} | ({} if proxy is None else {"LiteLLM": proxy})
    table = Table(("streams", "7d"), ("reader", "<14"), ("us/token", "8.1f"), ("of bare", "7.2f"))
    results: dict[str, Any] = {}
    for load in LOADS:
        us: dict[str, list[float]] = {}
        for number in range(options.rounds + 1):
            found = {
                name: await row(one, at.upstream, load, options, one.pid)
                for name, one in readers.items()
            }
            for name, (pid, url) in through.items():
                found[name] = await row(client, url, load, options, pid)
            if number:  # the first round warms up
                for name, one in found.items():
                    us.setdefault(name, []).append(one)
        factors = {
            name: median(own / bare for own, bare in zip(each, us[BARE], strict=True))
            for name, each in us.items()
        }
        for name, each in us.items():
            table.row(load.streams, name, median(each), factors[name])
        results[str(load.streams)] = {"us": us, "factors": factors}
    times: dict[str, list[float]] = {name: [] for name in ("directly", *through)}
    for _ in range(options.rounds):
        times["directly"] += await first_token(client, at.upstream, options)
        for name, (_, url) in through.items():
            times[name] += await first_token(client, url, options)
    base = percentile(times["directly"], 50)
    for name, each in times.items():
        p50, p99 = percentile(each, 50), percentile(each, 99)
        added = "" if name == "directly" else f", added {p50 - base:.2f} ms"
        print(f"first token, {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms{added}")
    return results | {"first_token_ms": times}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start all processes and compare."""
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(provided(MODELS))
        readers = {
            name: await stack.enter_async_context(helper("bench.providers.reader", *each))
            for name, each in READERS.items()
        }
        proxy = None
        if options.litellm is not None:
            proxy = await stack.enter_async_context(litellm(options.litellm, at.upstream))
        return await compare(at, readers, options, proxy)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own arguments."""
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the tokens and requests; default: 1"
    )
    parser.add_argument("--litellm", type=Path, help="Python of an environment with litellm[proxy]")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=5, smallest="--rounds 1 --share 0.05")
