"""Attribution of logs, metrics and spans: one scope per composed process.

An operating system process is normally one composed process, and everything belongs to `PROCESS`.
Several can be composed in one event loop, each in a task that entered a separate scope: tasks,
callbacks and servers started from there inherit it, as they inherit the request's ID.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import NoOpTracer, Tracer
from prometheus_client import REGISTRY, CollectorRegistry

if TYPE_CHECKING:  # the SDK is imported where there is somewhere to send spans
    from opentelemetry.sdk.trace import TracerProvider

    from baton.telemetry.tail import TailProcessor


class TelemetryScope:
    """Telemetry of one composed process, and the name it is recorded under.

    Args:
        service: the process's name on log lines and spans; empty: what `logs.configure` was given.
        instance_id: the instance's name on log lines and spans, likewise.
        registry: holds the metrics; None: one of its own.
    """

    def __init__(
        self,
        service: str = "",
        instance_id: str = "",
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.service = service
        self.instance_id = instance_id
        self.registry = CollectorRegistry(auto_describe=True) if registry is None else registry
        self.families: dict[object, Any] = {}
        """Metric families by their declaration. For baton.telemetry.metrics."""
        self.labels: dict[str, str] = {}
        """On every series that is shown, for a process that is about one thing, for example
        `{"model": "org/name"}`."""
        self.provider: TracerProvider | None = None
        """Sends the spans; None while there is nowhere to send them."""
        self.tracer: Tracer = NoOpTracer()
        self.tail: TailProcessor | None = None
        """Holds spans of traces that are not sampled."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Record what the block does, and what is started from it, in this scope."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


PROCESS = TelemetryScope(registry=REGISTRY)
"""The scope of everything that has not entered another one."""
_current: ContextVar[TelemetryScope] = ContextVar("baton_telemetry_scope", default=PROCESS)
_of_process: list[ContextVar[Any]] = [_current]
V = TypeVar("V")

current = _current.get
"""Return the scope that the caller runs in."""


def detached_context() -> Context:
    """Return a context in the caller's scope without its request or trace.

    For tasks that outlive the request that happened to start them, and serve all requests.
    """
    context = Context()
    for variable in _of_process:
        if variable in copy_context():
            context.run(variable.set, variable.get())
    return context


def of_process(variable: ContextVar[V]) -> ContextVar[V]:
    """Preserve a variable in detached contexts: it belongs to the composed process, not to a
    request."""
    _of_process.append(variable)
    return variable


def scoped_thread(run: Callable[[], None], name: str) -> Thread:
    """Return a daemon thread, not started, that runs `run` in the caller's scope.

    Threads do not inherit a context, and neither do callbacks that they schedule on an event loop.
    """
    scope = current()

    def scoped() -> None:
        with scope.entered():
            run()

    return Thread(target=scoped, name=name, daemon=True)
