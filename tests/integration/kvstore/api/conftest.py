"""A speaker of the protocol, for a store that must lose nothing by it."""

from collections.abc import AsyncIterator

import pytest

from services.kvstore.api.admin import stat
from tests.integration.kvstore.api.raw import Raw
from tests.support.stores import RunningStore
from tests.support.wait import eventually


@pytest.fixture
async def raw(store: RunningStore) -> AsyncIterator[Raw]:
    speaker = Raw(store.address)
    yield speaker
    await speaker.aclose()
    await eventually(lambda: stat(store.store).sessions == 0, 1)
