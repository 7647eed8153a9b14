"""A classifier of requests, which an operator plugs in: labels for rules, within a deadline."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from queue import SimpleQueue
from threading import Thread

from baton.auto.features import RequestFeatures
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter

SECONDS = 0.005
"""A label that takes longer is not waited for."""
CLASSIFIED = Counter(
    "baton_frontend_auto_labels_total",
    "Requests for `auto` that a classifier was to label, by outcome: `ok`, `late`, `failed`.",
    ["outcome"],
)

Classify = Callable[[RequestFeatures], str]
"""Returns the label of a request. Called on a thread, for one request at a time; native code that
releases the interpreter's lock does not delay other requests."""

log = get_logger(__name__)


def load_classifier(path: str) -> Classify:
    """Return the function that `package.module:function` names.

    Raises:
        ValueError: there is none; the message says why.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{path!r} is not a function")
    classify: Classify = found
    return classify


class Classifier:
    """Asks a function for labels, on a thread of its own. Lives on the event loop; `close` it.

    A request whose label is late goes on without one. While a late call has not returned, no
    request waits: only those that arrive within its deadline do, which bounds the queue.

    Args:
        classify: the function.
        seconds: the deadline.
    """

    def __init__(self, classify: Classify, seconds: float = SECONDS) -> None:
        self._classify = classify
        self._seconds = seconds
        self._calls: SimpleQueue[tuple[RequestFeatures, Future[str]] | None] = SimpleQueue()
        self._late: Future[str] | None = None
        """A call that did not return in time."""
        self._failing = False
        # A daemon: a call that never returns does not keep the process from ending.
        Thread(target=self._run, name="classifier", daemon=True).start()

    def close(self) -> None:
        """End the thread after its last call, which is not waited for."""
        self._calls.put(None)

    async def label(self, features: RequestFeatures) -> str:
        """Return the label of a request; empty: there is none in time."""
        if self._late is not None and not self._late.done():
            CLASSIFIED.labels("late").inc()
            return ""
        call: Future[str] = Future()
        self._calls.put((features, call))
        try:
            async with asyncio.timeout(self._seconds):
                label = await asyncio.wrap_future(call)
        except TimeoutError:
            if not call.cancelled():  # it runs, and cannot be stopped
                self._late = call
            CLASSIFIED.labels("late").inc()
            return ""
        except Exception as error:  # noqa: BLE001 - the function may fail in any way
            if not self._failing:
                log.warning("request.label.failed", error=f"{type(error).__name__}: {error}")
            self._failing = True
            CLASSIFIED.labels("failed").inc()
            return ""
        self._failing = False
        CLASSIFIED.labels("ok").inc()
        return label

    def _run(self) -> None:
        while (found := self._calls.get()) is not None:
            features, call = found
            if not call.set_running_or_notify_cancel():
                continue
            try:
                label = self._classify(features)
                if not isinstance(label, str):
                    raise TypeError(f"a label is a string, not {type(label).__name__}")
            except BaseException as error:  # noqa: BLE001 - it is raised where the label is awaited
                call.set_exception(error)
            else:
                call.set_result(label)
