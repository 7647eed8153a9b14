"""Log lines: what they carry, and in which shape."""

import io
import json
import logging

import pytest

from baton.telemetry import logs
from baton.telemetry.context import request_id
from baton.telemetry.tracing import extract

pytestmark = pytest.mark.usefixtures("restore_logging")


def lines(out: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_line_names_process_request_and_trace():
    from opentelemetry import context

    out = io.StringIO()
    logs.configure("router", "router-1", stream=out)
    token = request_id.set("req-7")
    attached = context.attach(extract(f"00-{'a' * 32}-{'b' * 16}-01"))
    logs.get_logger("baton.test").info("placed", ticket=3)
    context.detach(attached)
    request_id.reset(token)
    logs.get_logger("baton.test").info("idle")
    first, second = lines(out)
    assert first["event"] == "placed"
    assert first["ticket"] == 3
    assert (first["service"], first["instance"]) == ("router", "router-1")
    assert (first["request_id"], first["trace_id"]) == ("req-7", "a" * 32)
    assert first["level"] == "info"
    assert first["logger"] == "baton.test"
    assert "request_id" not in second
    assert "trace_id" not in second


def test_level_holds_for_our_lines_and_libraries_only_warn():
    out = io.StringIO()
    logs.configure("router", "router-1", level="info", stream=out)
    logs.get_logger("baton.test").debug("hidden")
    logging.getLogger("somelibrary").info("hidden")
    logging.getLogger("somelibrary").warning("from a %s", "library")
    (line,) = lines(out)
    assert line["event"] == "from a library"
    assert line["instance"] == "router-1"


def test_exception_becomes_one_line_with_its_traceback():
    out = io.StringIO()
    logs.configure("router", "router-1", stream=out)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logs.get_logger("baton.test").exception("failed")
    (line,) = lines(out)
    assert "RuntimeError: boom" in line["exception"]


def test_logger_made_before_configuring_writes_as_configured():
    logger = logs.get_logger("baton.early")
    out = io.StringIO()
    logs.configure("router", "router-1", stream=out)
    logger.info("late")
    assert lines(out)[0]["event"] == "late"


def test_terminal_gets_text():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    logs.configure("router", "router-1", stream=out)
    logs.get_logger("baton.test").info("hello")
    assert "hello" in out.getvalue()
    assert not out.getvalue().startswith("{")
    try:
        prompt = "a secret".upper()
        raise RuntimeError("boom")
    except RuntimeError:
        logs.get_logger("baton.test").exception("failed")
    assert "RuntimeError: boom" in out.getvalue()
    assert prompt not in out.getvalue()
