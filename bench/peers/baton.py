"""Baton: one frontend, one router, and one combined worker with the sim engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.harness.cluster import cluster
from bench.peers.serving import Serving
from bench.serving.token_path import SETTINGS


@asynccontextmanager
async def baton(model: Path, step_seconds: float) -> AsyncIterator[Serving]:
    """Serve a model with steps of this many seconds, whatever the number of streams."""
    settings = {
        **SETTINGS,
        "BATON_ENGINE_SIM_TIME_SCALE": "1",
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": str(step_seconds),
        "BATON_ENGINE_SIM_DECODE_SEQUENCE_SECONDS": "0",
    }
    workers = ("--prefill=0", "--decode=0", "--combined=1", "--engine=sim")
    async with cluster(*workers, f"--model={model}", settings=settings) as up:
        pids = up.pids()
        path = {name: pids[f"{name}-0"] for name in ("frontend", "router")}
        yield Serving(up.model, up.http, up.grpc, path)
