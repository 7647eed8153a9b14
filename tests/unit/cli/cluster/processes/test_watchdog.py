"""Which processes a supervisor takes for frozen."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import closing

from baton.cli.cluster.local.processes import watchdog
from baton.cli.cluster.local.processes.watchdog import SILENT, frozen, is_stopped, livez
from baton.ops.checks import Liveness, Readiness
from baton.ops.server import OpsServer
from baton.settings import OpsSettings
from tests.support.clock import within
from tests.support.processes.freeze import freeze


async def test_a_process_that_is_stopped_is_noticed_and_one_that_sleeps_is_not() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(60)"
    )
    try:

        async def healthy() -> str:
            return ""

        watching = asyncio.create_task(frozen(process.pid, healthy, patience=1.0))
        await asyncio.wait([watching], timeout=2.5)
        assert not watching.done()
        freeze(process.pid)
        assert is_stopped(process.pid)
        async with within(5):
            assert await watching == "has been stopped for 1 s"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    assert not is_stopped(process.pid)


async def test_a_process_that_answers_nothing_hangs_one_that_answers_late_does_not(
    monkeypatch,
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "PROBE_SECONDS", 0.02)
    asked = 0

    async def probe() -> str:
        nonlocal asked
        asked += 1
        return "" if asked < 20 and asked % 3 == 0 else SILENT

    async with within(10):
        assert await frozen(os.getpid(), probe, patience=0.05) == "has not responded for 0.5 s"
    assert asked > 20


async def test_a_process_that_says_it_is_stuck_is_noticed_at_once(monkeypatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "PROBE_SECONDS", 0.01)
    liveness = Liveness(stuck_seconds=1.0)
    with closing(OpsServer(OpsSettings(), liveness, Readiness())) as ops:
        assert await livez(ops.address, 5.0) == ""
        liveness.watch("engine", lambda: liveness.clock.now() - 5.0)

        async def probe() -> str:
            return await livez(ops.address, 5.0)

        async with within(10):
            why = await frozen(os.getpid(), probe, patience=60.0)
    assert why == "is not alive (engine: stuck for 5 s)"
    assert await livez(ops.address, 5.0) == ""  # nobody is there


async def test_a_process_that_does_not_answer_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert await livez(f"127.0.0.1:{mute.getsockname()[1]}", 0.05) == SILENT
