"""Logging as it was, after tests that configure it."""

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from baton.telemetry import logs


@pytest.fixture
def restore_logging() -> Iterator[None]:
    """Undo what the test configures."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    config = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("baton", "services"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.configure(**config)


@pytest.fixture
def configured_logs(restore_logging: None) -> io.StringIO:
    """Where JSON lines of router-1 go during the test."""
    out = io.StringIO()
    logs.configure("router", "router-1", stream=out)
    return out
