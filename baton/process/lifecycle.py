"""The life cycle of a process: settings, telemetry, composition, signals, drain, exit.

    settings ─▶ logs, traces, ops port ─▶ compose ─▶ (serves) ─▶ signal ─▶ drain ─▶ unwind ─▶ exit

Exit codes: 0 after a signal, 1 if a part failed permanently or the shutdown took too long, 2 if a
setting or the machine (a port in use, a missing file) must be fixed by an operator.
"""

import asyncio
import errno
import gc
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing, nullcontext, suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

import uvloop

from baton.ops.checks import Liveness, Readiness
from baton.ops.server import OpsServer
from baton.process.allocator import keep_freed_memory
from baton.process.heartbeat import beat
from baton.process.open_files import take_all_open_files
from baton.process.parent import die_with_parent
from baton.process.process import Process
from baton.process.signals import EXIT_FAILED, ShutdownSignals
from baton.settings import ProcessSettings, StartupError, load_with_sources, misspelled
from baton.telemetry import logs, tracing

log = logs.get_logger(__name__)

S = TypeVar("S", bound=ProcessSettings)

__all__ = ["Process", "main"]

GARBAGE_THRESHOLD = 20_000
"""Net allocated objects that trigger a run of the collector."""
EXIT_STARTUP = 2


Compose = Callable[[Process, S], Awaitable[None]]


def main(
    settings_type: type[S],
    compose: Compose[S],
    name: str,
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Run a process until a signal, then exit. Call it from `__main__`, on the main thread.

    Args:
        settings_type: the process's settings.
        compose: enters the parts into `process.stack` and returns once they serve.
        name: name of the process: `frontend`, `router`, `prefill`, `decode` or `kvstore`.
        arguments: the command line; None: that of the process.
    """
    die_with_parent()
    keep_freed_memory()
    take_all_open_files()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        loaded = load_with_sources(settings_type, given, name)
    except StartupError as error:
        _complain(name, str(error))
    settings = loaded.settings
    instance_id = settings.instance_id or f"{name}-{secrets.token_hex(4)}"
    telemetry = settings.telemetry
    logs.configure(name, instance_id, telemetry.log_level, telemetry.log_format, for_good=True)
    for sentence in (*loaded.warnings, *misspelled(os.environ)):
        log.warning("settings.value.suspicious", reason=sentence)
    tracing.configure(name, telemetry, instance_id)
    signals = ShutdownSignals(settings.drain_seconds + settings.close_seconds)
    signals.take()
    try:
        ops = OpsServer(
            settings.ops,
            Liveness(settings.ops.stuck_seconds),
            Readiness(),
            settings.advertise_host,
        )
        with closing(ops), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_live(settings, compose, name, instance_id, ops, signals))
    except StartupError as error:
        _complain(name, str(error))
    finally:
        tracing.shutdown(telemetry.otlp_flush_seconds)
    sys.exit(code)


async def _live(
    settings: S,
    compose: Compose[S],
    name: str,
    instance_id: str,
    ops: OpsServer,
    signals: ShutdownSignals,
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_error)
    stopping = asyncio.Event()
    signals.stop_with(loop, stopping)
    try:
        async with AsyncExitStack() as stack:
            process = Process(
                name,
                instance_id,
                secrets.token_hex(8),
                stack,
                stopping,
                ops.address,
                ops.liveness,
                ops.readiness,
            )
            beat(loop, process.liveness)
            process.readiness.follow(partial(_log_ready, process))
            if await _started(compose(process, settings), stopping):
                process.composed()
                _settle_garbage()
                await stopping.wait()
                signals.arm()
                if process.failure is None:
                    await process.drain(settings.drain_seconds)
                await process.end_tasks()
            signals.arm()
        log.info("process.service.stopped")
        return 0 if process.failure is None else EXIT_FAILED
    except StartupError:
        raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartupError(f"A port is in use: {error}. Free the port.") from error
        log.exception("process.service.failed")
        return EXIT_FAILED
    except Exception:
        log.exception("process.service.failed")
        return EXIT_FAILED
    finally:
        signals.arm()


async def _started(composing: Awaitable[None], stopping: asyncio.Event) -> bool:
    """Compose, unless the process is stopped before that is done."""
    task = asyncio.ensure_future(composing)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stopped = not task.done()
        if stopped:
            task.cancel()
        with suppress(asyncio.CancelledError) if stopped else nullcontext():
            await task
        return not stopped
    finally:
        stop.cancel()


def _settle_garbage() -> None:
    """Exclude long-lived objects from garbage collection, and collect the rest less often.

    A full collection blocks the loop while it visits all objects, and garbage of requests is almost
    always freed by reference counting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)


def _log_ready(process: Process, ready: bool) -> None:
    if ready:
        log.info("process.service.ready", incarnation=process.incarnation)


def _complain(name: str, sentence: str) -> NoReturn:
    sys.stderr.write(f"baton {name}: {sentence}\n")
    sys.stderr.flush()
    sys.exit(EXIT_STARTUP)


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error(
        "process.exception.unhandled", error=context["message"], exc_info=context.get("exception")
    )
