"""What a stream holds goes back although its client never reads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.rpc.protocol import VERSION
from baton.settings import StoreLimits
from services.kvstore.api.admin import stat
from services.kvstore.api.service import KvStoreService
from services.kvstore.memory.slot import Slot
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.store import Store
from tests.support.clock import within
from tests.support.doubles.call import ScriptedCall
from tests.unit.kvstore.conftest import LAYOUT, PAGE, make_store, object_id


def soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with make_store(tmp_path, call_soon=soon) as store:
        store.commit(store.reserve([object_id(1)], PAGE), [b"d" * 16])  # type: ignore[arg-type]
        yield store


async def session_of(service: KvStoreService) -> str:
    request = pb.AttachRequest(client_id="client", incarnation="1", protocol_version=VERSION)
    return (await service.Attach(request, None)).session_id


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
async def test_the_stream_of_a_client_that_never_reads_holds_nothing(
    store: Store, method: str, said: Any, held: tuple[int, int, int]
) -> None:
    def counts() -> tuple[int, ...]:
        now = stat(store)
        return (now.leases, now.reservations, now.waiters)

    service = KvStoreService(store, NixlSender(store, None), StoreLimits(linger_seconds=0.05))
    call = ScriptedCall(said(await session_of(service)), takes=1)
    async with within(5):
        serving = asyncio.create_task(getattr(service, method)(None, call))
        await call.stuck.wait()
        assert counts() == held
        assert call.buffer_bytes > PAGE
        call.half_close()
        with pytest.raises(BatonError) as caught:
            await serving
    assert caught.value.reason is Reason.SLOW_CONSUMER
    assert (counts(), stat(store).sessions) == ((0, 0, 0), 0)
    assert store.table.pinned_bytes == 0


async def test_who_has_said_all_still_gets_the_answers(store: Store) -> None:
    service = KvStoreService(store, NixlSender(store, None))
    call: Any = ScriptedCall(get_frames(await session_of(service))[:2])
    async with within(5):
        serving = asyncio.create_task(service.Get(None, call))
        while len(call.sent) < 2:
            await asyncio.sleep(0)
        call.half_close()
        await serving
    kinds = [frame.WhichOneof("frame") for frame in call.sent]
    assert kinds == ["opened", "ready"]  # which says that it is the last
    assert (stat(store).leases, stat(store).sessions) == (0, 0)


async def test_a_store_is_idle_while_nothing_can_expire(store: Store) -> None:
    store.activity.clear()
    assert store.idle
    (slot,) = store.reserve([object_id(3)], PAGE)
    assert store.activity.is_set()  # who slept until now wakes
    store.activity.clear()
    assert not store.idle
    assert isinstance(slot, Slot)
    store.commit_one(slot, b"d" * 16)
    store.activity.clear()
    assert store.idle
    store.schedule_flush()
    assert not store.idle
