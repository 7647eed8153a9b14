"""When a store that stops may end."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from services.kvstore import drain
from services.kvstore.drain import wait_unused


@dataclass
class UsedStore:
    """What the drain looks at."""

    streams: int = 1
    uses: int = 0
    in_use: bool = False
    now: float = 0.0

    def clock(self) -> float:
        return self.now


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_LOOK_SECONDS", 0)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_store_ends_once_it_was_quiet(looks: None) -> None:
    store: Any = UsedStore()
    waiting = asyncio.create_task(wait_unused(store, 2.0))
    await turns()
    store.now, store.uses = 1.9, 1  # something was read
    await turns()
    store.now, store.in_use = 3.8, True  # a read is under way
    await turns()
    store.now = 60.0
    await turns()
    store.in_use = False
    store.now = 61.9
    await turns()
    assert not waiting.done()
    store.now = 62.1
    await waiting


async def test_what_a_client_wrote_before_it_left_may_still_be_read(looks: None) -> None:
    store: Any = UsedStore()
    waiting = asyncio.create_task(wait_unused(store, 2.0))
    await turns()
    store.now, store.streams = 1.9, 0
    await turns()
    store.now = 3.8  # another store reads it now
    await turns()
    assert not waiting.done()
    store.now = 4.0
    await waiting
