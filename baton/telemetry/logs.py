"""Log lines: structured, with trace and request id, to standard error.

Levels: debug is for developers of a part; info reports changes of a process's state (started,
    joined, drained); warning a recovered problem that should be checked; error a loss. Lines
    contain no prompts, outputs, keys or secrets: an API key in one, for example in a client's model
    name or a library's traceback, is redacted.

Events are named `area.noun.verb`, and their fields come from one list:
    tests/unit/structure/test_log_events.py holds both.
"""

import logging
import logging.config
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TextIO, cast

import msgspec
from opentelemetry import trace

from baton.host.redaction import redact
from baton.telemetry.context import request_id
from baton.telemetry.scope import current


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Run the imports of the block without an optional package."""
    imported = package in sys.modules
    if not imported:
        sys.modules[package] = None  # type: ignore[assignment]  # as the import system has it
    try:
        yield
    finally:
        if not imported:
            del sys.modules[package]


# Importing rich is a tenth of a process's start; its tracebacks would show prompts and secrets.
with _without("rich"):
    import structlog
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Format = Literal["auto", "json", "console"]


def configure(
    service: str,
    instance_id: str,
    level: str = "info",
    log_format: Format = "auto",
    stream: TextIO | None = None,
    for_good: bool = False,
) -> None:
    """Send this process's lines, and those of the libraries it uses, to `stream`.

    Args:
        service: name of the process, on every line not written by another telemetry scope.
        instance_id: name of the instance, likewise.
        level: least severe level written: debug, info, warning or error.
        log_format: auto is text on a terminal and JSON elsewhere.
        stream: where lines go; None: standard error.
        for_good: the configuration is final. Loggers keep the one of their first line, which makes
            each later line a third cheaper.
    """
    out = sys.stderr if stream is None else stream
    as_json = log_format == "json" or (log_format == "auto" and not out.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]

    def name_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        scope = current()
        event["service"] = scope.service or service
        event["instance"] = scope.instance_id or instance_id
        return event

    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
        _add_request,
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_json)]
        if as_json
        else [
            # The library's own choice takes a second, and writes local variables: prompts, secrets.
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
            _redact_line,
        ]
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    # Not by way of the standard library's loggers, which cost five times as much per line.
    structlog.configure(
        processors=[*shared, *last],
        logger_factory=partial(_NamedLogger, out),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=for_good,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a logger named like the module that uses it.

    Usable at import time: the configuration applies from the first line that is written.
    """
    return cast(FilteringBoundLogger, structlog.get_logger(name))


class _NamedLogger(structlog.WriteLogger):
    """Writes lines to `out`, and has the name that `get_logger` was given."""

    def __init__(self, out: TextIO, name: str = "") -> None:
        super().__init__(out)
        self.name = name


def _json(event: Any, **_: Any) -> str:
    """Return a line as JSON; values that JSON does not support are written as Python's repr."""
    return redact(msgspec.json.encode(event, enc_hook=repr).decode())


def _redact_line(_: WrappedLogger, __: str, line: Any) -> str:
    return redact(line)


def _add_request(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    identity = request_id.get()
    if identity:
        event.setdefault("request_id", identity)
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event.setdefault("trace_id", format(span.trace_id, "032x"))
        event.setdefault("span_id", format(span.span_id, "016x"))
    return event
