"""One server for all tests that leave it as it was."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from baton.telemetry.scope import TelemetryScope
from tests.support.grpc.echo_service import EchoService, serving


@pytest.fixture(scope="session")
async def echo() -> AsyncIterator[tuple[EchoService, str]]:
    """The service and its server's address."""
    # Of its own scope, for a test's tasks end with the test.
    scope = TelemetryScope("test", "echo")
    with scope.entered():
        stack = AsyncExitStack()
        served = await stack.enter_async_context(serving())
    yield served
    with scope.entered():
        await stack.aclose()


@pytest.fixture
def address(echo: tuple[EchoService, str]) -> str:
    """Of the server, `host:port`."""
    return echo[1]
