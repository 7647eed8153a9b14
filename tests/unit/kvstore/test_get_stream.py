"""A reader's stream keeps nothing of reads that are over, however their leases ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.settings import StoreLimits
from services.kvstore.api.admin import stat
from services.kvstore.api.get import GetStream
from services.kvstore.store import Store
from tests.unit.kvstore.conftest import LAYOUT, PAGE, make_store, object_id

MAX_READS = StoreLimits().max_reads


@pytest.fixture
def time() -> list[float]:
    return [0.0]


@pytest.fixture
def store(tmp_path: Path, time: list[float]) -> Iterator[Store]:
    with make_store(tmp_path, clock=lambda: time[0]) as store:
        store.commit(store.reserve([object_id(1)], PAGE), [b"d" * 16])  # type: ignore[arg-type]
        yield store


def read_frame(number: int) -> pb.GetRequest:
    frame = pb.Read(correlation_id=number, layout_id=LAYOUT, keys=object_id(1).key)
    return pb.GetRequest(read=frame)


async def test_a_read_whose_leases_lapsed_makes_room_for_others(
    store: Store, time: list[float]
) -> None:
    stream = GetStream(store)
    for number in range(1, MAX_READS + 1):
        stream.handle(read_frame(number))
        store.flush()
        stream.send_queue._frames.clear()
    time[0] += 11  # the reader was stopped, and did not say that it is done
    store.tick()
    assert stat(store).leases == 0
    stream.handle(read_frame(MAX_READS + 1))
    store.flush()
    (frame,) = stream.send_queue._frames
    assert frame.ready.done
    stream.close()
    assert (stat(store).leases, stat(store).waiters) == (0, 0)
