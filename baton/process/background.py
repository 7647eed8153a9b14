"""Background tasks whose failures are logged immediately."""

import asyncio
from collections.abc import Coroutine
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


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("process.task.failed", task=task.get_name(), exc_info=error)
