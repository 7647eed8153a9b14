"""What becomes of a test that hangs: it fails with where it stands, and the others go on.

pytest-timeout says when. It tries once and only until something fails, by an exception which an
event loop's callback does not let through: a teardown behind a failure, or a callback that does not
return, would keep its process, and with it the run, for ever.
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
"""What did not end is failed again after this part of its time: a fixture, or the test itself."""
TRIES = 3
"""So often; then its process ends, and xdist starts another one for the tests that are left."""
FRAMES = 12
TASKS = 40
"""How much is shown: of each thread the innermost frames, of tasks those of tests before others."""

_settings = pytest.StashKey[Settings]()


class HungTests:
    """A plugin of pytest: takes the place of what pytest-timeout does by itself."""

    @pytest.hookimpl
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Settings) -> bool:
        """Fail the test once its time is up, of a quiet machine, and again what does not end."""
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

        vars(item)["cancel_timeout"] = cancel  # as pytest-timeout's own hook calls it
        signal.signal(signal.SIGALRM, fail)
        arm(settings.timeout)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Give teardown its own time where the test has failed: pytest-timeout stops then."""
        running = signal.getitimer(signal.ITIMER_REAL)[0]
        if not running and (settings := item.stash.get(_settings, None)) is not None:
            self.pytest_timeout_set_timer(item, settings)
        return (yield)


def stacks(frame: FrameType | None) -> str:
    """Return where this thread stands, all others do, and what each task of its loop awaits."""
    lines = ["in the main thread:", *_frames(frame)]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, other in sys._current_frames().items():
        if ident != threading.get_ident():
            lines += [f"in thread {names.get(ident, ident)}:", *_frames(other)]
    try:
        tasks = list(asyncio.all_tasks())
    except RuntimeError:  # no loop runs
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
    """Return what a task awaits, the outermost first."""
    lines, awaited = [f"task {task.get_name()} awaits:"], task.get_coro()
    while (frame := _part(awaited, "frame")) is not None:
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = _part(awaited, "await") or _part(awaited, "yieldfrom")
    return lines if len(lines) > 1 else [*lines, f"  {awaited!r}"]


def _part(awaited: Any, name: str) -> Any:
    """Return a coroutine's, a generator's or an asynchronous generator's attribute."""
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
