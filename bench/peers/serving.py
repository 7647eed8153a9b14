"""A running server of the comparison."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from bench.harness.child import log_path, process

MODEL = "tiny"
"""The peers' name for the model."""
START_SECONDS = 60.0


@dataclass(frozen=True)
class Serving:
    """A server with a simulated engine."""

    model: str
    http: str
    """`host:port`."""
    grpc: str
    """`host:port` of Baton's gRPC API; empty: there is none."""
    path: Mapping[str, int]
    """The pids of the processes before the worker on the path of requests and tokens, by name."""


@asynccontextmanager
async def program(
    name: str, *command: str | Path, settings: Mapping[str, str] = {}
) -> AsyncIterator[int]:
    """Run a peer's program until the block exits, with its log in build/bench/NAME.log.

    Yields its pid.
    """
    with log_path(name).open("w") as log:
        started = process(command, settings, stdout=log.fileno(), stderr=log)
        async with started as child:
            yield child.pid


async def lists_model(address: str, logs: Sequence[str]) -> None:
    """Return once a server lists the model over HTTP.

    Args:
        address: `host:port`.
        logs: the names under which its programs log.

    Raises:
        SystemExit: it did not within `START_SECONDS`.
    """
    limit = time.monotonic() + START_SECONDS
    while not await asyncio.to_thread(_listed, address):
        if time.monotonic() > limit:
            said = ", ".join(str(log_path(name)) for name in logs)
            raise SystemExit(f"no model at {address} after {START_SECONDS:g} s: see {said}")
        await asyncio.sleep(0.25)


def _listed(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/v1/models", timeout=2) as answer:
            return f'"{MODEL}"'.encode() in answer.read()
    except OSError:
        return False
