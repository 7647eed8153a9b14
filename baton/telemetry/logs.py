"""Log lines: structured, with trace and request id, to standard error.

Levels: debug is for the author of a part; info says what a process did that changes its state
(started, joined, drained); warning is something that was survived and should be looked at; error
is something that was lost. Lines carry no prompts, answers, keys or secrets.
"""

import logging
import logging.config
import sys
from typing import Literal, TextIO, cast

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from baton.telemetry.context import request_id
from baton.telemetry.scope import current

Format = Literal["auto", "json", "console"]


def configure(
    service: str,
    instance_id: str,
    level: str = "info",
    log_format: Format = "auto",
    stream: TextIO | None = None,
) -> None:
    """Send this process's lines, and those of the libraries it uses, to `stream`.

    Args:
        service: name of the process, on every line that no other telemetry scope writes.
        instance_id: name of the instance, likewise.
        level: least severe level written: debug, info, warning or error.
        log_format: auto is for people on a terminal and JSON elsewhere.
        stream: where lines go; None: standard error.
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
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
        _add_request,
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            # The library's own choice takes a second, and writes local variables: prompts, secrets.
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("baton").setLevel(threshold)
    logging.getLogger("services").setLevel(threshold)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger named like the module that writes to it.

    Usable at import time: what `configure` set applies from the first line that is written.
    """
    return cast(FilteringBoundLogger, structlog.stdlib.get_logger(name))


def _add_request(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    identity = request_id.get()
    if identity:
        event.setdefault("request_id", identity)
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = format(span.trace_id, "032x")
        event["span_id"] = format(span.span_id, "016x")
    return event
