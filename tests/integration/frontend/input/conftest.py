"""A stage for all tests of a file: input changes nothing of it."""

import copy
import functools
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.telemetry.scope import TelemetryScope
from tests.integration.frontend.conftest import Stage
from tests.support.services.service import LocalServices


@pytest.fixture(scope="module")
async def stage_of_file(
    etcd: LocalEtcd, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """A stage that was set. Its tasks are not those of the test that happens to be the first."""
    cluster = f"test-{secrets.token_hex(6)}"
    async with Etcd(etcd.endpoints) as client, AsyncExitStack() as stack:
        services = LocalServices(client, cluster, tmp_path_factory.mktemp("stage"))
        stack.push_async_callback(services.close)
        stage = Stage(client, cluster, services, stack, model_dir)
        with TelemetryScope("doubles").entered():
            await stage.set()
        yield stage


@pytest.fixture
async def stage(stage_of_file: Stage) -> AsyncIterator[Any]:
    """The stage, with nothing asked of it, and one channel of the test's own."""
    stage_of_file.router.queries.clear()
    for worker in stage_of_file.workers:
        worker.frames.clear()
    async with AsyncExitStack() as stack:
        mine = copy.copy(stage_of_file)
        mine.stack = stack
        mine.stub = functools.cache(mine.stub)
        yield mine
    await mine.quiet(10.0)
    assert mine.frontend.failure is None
