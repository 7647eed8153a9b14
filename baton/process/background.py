"""Background tasks whose failures are logged immediately."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from baton.telemetry.logs import get_logger

log = get_logger(__name__)


def start_background(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """Start a task that logs an error as soon as it fails, and return it.

    The caller owns the task: it cancels it and awaits its end.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def cancel_all(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancel tasks, and return once all have ended; their errors are not raised."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("process.task.failed", task=task.get_name(), exc_info=error)
