"""What a stream holds goes back although its handler is stuck in a write for ever."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.events.log import EventLog
from services.kvstore.api.admin import stat
from services.kvstore.api.service import KvStoreService
from services.kvstore.memory.arena import Arena
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.store import Store
from tests.unit.kvstore.conftest import LAYOUT, PAGE, object_id

MIB = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Arena(tmp_path, 4 * MIB) as arena:
        while arena.touch_next():
            pass
        store = Store("me", arena, EventLog("e"), reservation_seconds=10, lease_seconds=10)
        store.grow()
        slot = store.reserve(object_id(1), PAGE)
        store.commit(slot, b"d" * 16)  # type: ignore[arg-type]
        yield store


async def session_of(service: KvStoreService) -> str:
    request = pb.AttachRequest(client_id="client", incarnation="1")
    return (await service.Attach(request, None)).session_id


async def frames(*said: Any, more: asyncio.Event) -> AsyncIterator[Any]:
    for frame in said:
        yield frame
    await more.wait()


def get_frames(session_id: str) -> list[pb.GetRequest]:
    request = pb.Read(correlation_id=1, layout_id=LAYOUT, keys=object_id(1).key)
    waiting = pb.Read(correlation_id=2, layout_id=LAYOUT, keys=object_id(2).key)
    waiting.wait.seconds = 60
    return [
        pb.GetRequest(open=pb.Open(session_id=session_id)),
        pb.GetRequest(read=request),
        pb.GetRequest(read=waiting),
    ]


def put_frames(session_id: str) -> list[pb.PutRequest]:
    reserve = pb.Reserve(
        correlation_id=1, layout_id=LAYOUT, keys=object_id(3).key, object_bytes=PAGE
    )
    return [
        pb.PutRequest(open=pb.Open(session_id=session_id)),
        pb.PutRequest(reserve=reserve),
    ]


@pytest.mark.parametrize(
    ("method", "said", "held"), [("Get", get_frames, (1, 0, 1)), ("Put", put_frames, (0, 1, 0))]
)
async def test_a_handler_that_stays_in_a_write_holds_nothing(
    store: Store, method: str, said: Any, held: tuple[int, int, int]
) -> None:
    def counts() -> tuple[int, ...]:
        now = stat(store)
        return (now.leases, now.reservations, now.waiters)

    service = KvStoreService(store, NixlSender(store, None), gone_seconds=0.05)
    gone = asyncio.Event()
    requests = frames(*said(await session_of(service)), more=gone)
    answers = getattr(service, method)(requests, None)
    try:
        for _ in range(2):  # from here on it is as if gRPC never came back from writing the second
            await anext(answers)
        assert counts() == held
        await asyncio.sleep(0.1)
        assert counts() == held
        gone.set()
        async with asyncio.timeout(2):
            while stat(store).sessions:
                await asyncio.sleep(0.01)
        assert counts() == (0, 0, 0)
        assert store.table.pinned_bytes == 0
    finally:
        await answers.aclose()
    assert (counts(), stat(store).sessions) == ((0, 0, 0), 0)


async def test_who_has_said_all_still_gets_the_answers(store: Store) -> None:
    service = KvStoreService(store, NixlSender(store, None))
    said = asyncio.Event()
    said.set()
    requests = frames(*get_frames(await session_of(service))[:2], more=said)
    kinds = [frame.WhichOneof("frame") async for frame in service.Get(requests, None)]
    assert kinds == ["opened", "ready"]  # which says that it is the last
    assert (stat(store).leases, stat(store).sessions) == (0, 0)
