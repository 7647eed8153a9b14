"""Handling of tests that hang: the test fails with its stack, and the other tests continue.

pytest-timeout detects them. It acts once, and only until a failure, by an exception which a
callback of an event loop does not let through. A teardown after a failure, or a callback that does
not return, would keep its process, and with it the run, forever.
"""

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from pytest_timeout import Settings, is_debugging

from tests.support.clock import Stopwatch

AGAIN = 4
"""A test or fixture that did not end is failed again after this share of its time."""
TRIES = 3
"""How often; then its process ends, and xdist starts another one for the remaining tests."""
FRAMES = 12
TASKS = 40
"""Output limits: the innermost frames of each thread, and tasks, those of tests first."""

_settings = pytest.StashKey[Settings]()


class HungTests:
    """A plugin of pytest that replaces the actions of pytest-timeout."""

    @pytest.hookimpl
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Settings) -> bool:
        """Fail the test once its time of a quiet machine is up, and again if it does not end."""
        item.stash[_settings] = settings
        tries, watch = 0, Stopwatch()

        def fail(_: int, frame: FrameType | None) -> None:
            nonlocal tries
            if is_debugging():
                return
            if not tries and (left := watch.remaining(settings.timeout)):
                arm(left)
                return
            tries += 1
            text = f"{item.nodeid}: not done after {settings.timeout:g} s\n{stacks(frame)}"
            if tries > TRIES:
                _end_process(item, text)
            pytest.fail(text, pytrace=False)

        def arm(seconds: float) -> None:
            signal.setitimer(signal.ITIMER_REAL, seconds, settings.timeout / AGAIN)

        def cancel() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

        vars(item)["cancel_timeout"] = cancel  # called as by pytest-timeout's own hook
        signal.signal(signal.SIGALRM, fail)
        arm(settings.timeout)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Give teardown its own time after a failure: pytest-timeout has stopped then."""
        running = signal.getitimer(signal.ITIMER_REAL)[0]
        if not running and (settings := item.stash.get(_settings, None)) is not None:
            self.pytest_timeout_set_timer(item, settings)
        return (yield)


def stacks(frame: FrameType | None) -> str:
    """Return the stacks of all threads, and what each task of this thread's loop awaits."""
    lines = ["in the main thread:", *_frames(frame)]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, other in sys._current_frames().items():
        if ident != threading.get_ident():
            lines += [f"in thread {names.get(ident, ident)}:", *_frames(other)]
    try:
        tasks = list(asyncio.all_tasks())
    except RuntimeError:  # no loop is running
        tasks = []
    waits = sorted((_waits(task) for task in tasks), key=lambda lines: "/tests/" not in lines[1])
    for shown in waits[:TASKS]:
        lines += shown
    if len(waits) > TASKS:
        lines.append(f"and {len(waits) - TASKS} more tasks")
    return "\n".join(lines)


def _frames(frame: FrameType | None) -> list[str]:
    return [line.rstrip("\n") for line in traceback.format_stack(frame, FRAMES)]


def _waits(task: asyncio.Task[Any]) -> list[str]:
    """Return what a task awaits, outermost first."""
    lines, awaited = [f"task {task.get_name()} awaits:"], task.get_coro()
    while (frame := _part(awaited, "frame")) is not None:
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = _part(awaited, "await") or _part(awaited, "yieldfrom")
    return lines if len(lines) > 1 else [*lines, f"  {awaited!r}"]


def _part(awaited: Any, name: str) -> Any:
    """Return an attribute of a coroutine, a generator or an asynchronous generator."""
    return next(
        (value for kind in ("cr_", "gi_", "ag_") if (value := getattr(awaited, kind + name, None))),
        None,
    )


def _end_process(item: pytest.Item, text: str) -> None:
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    sys.stdout.flush()
    sys.stderr.write(f"\n{text}\nIt does not end: its process is ended.\n")
    sys.stderr.flush()
    os._exit(1)
