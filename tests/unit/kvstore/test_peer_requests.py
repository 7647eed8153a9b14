"""What a peer is asked: each object once, fetched once, given up when nobody wants it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.digest import start_digest
from baton.kv.keys import unpack
from baton.kv.objects import ObjectId
from baton.kv.wire.bulk import ReadBulk
from services.kvstore.api.admin import stat
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.requests import RETRY_SECONDS, PeerRequests
from services.kvstore.peers.transports.grpc import GrpcTransport
from services.kvstore.reads.read_request import ReadRequest, ReadSource
from services.kvstore.store import Store
from tests.unit.kvstore.conftest import MIB, Reader, make_store, object_id

SIZE = 4096


@dataclass
class Network:
    """A store whose peers are in the test's hand."""

    store: Store
    in_flight: InFlight
    time: list[float]
    requests: dict[ReadSource, PeerRequests] = field(default_factory=dict)

    def peer(self, name: str) -> PeerRequests:
        source = ReadSource(name, f"{name}:1")
        if source not in self.requests:
            self.requests[source] = PeerRequests(
                source, self.in_flight, self.store.waits, [GrpcTransport(self.in_flight, 5)]
            )
        return self.requests[source]

    def fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        for source in request.sources:
            self.peer(source.store_id).fetch(request, object_id)

    def cancel(self, request: ReadRequest, object_id: ObjectId) -> None:
        for source in request.sources:
            self.peer(source.store_id).cancel(request, object_id)

    def flush(self, now: float) -> None:
        pass  # the test takes the frames itself

    def read(
        self, *numbers: int, sources: tuple[str, ...], wait: float = 10.0
    ) -> tuple[Reader, ReadRequest]:
        reader = Reader()
        ids = [object_id(number) for number in numbers]
        request = ReadRequest(reader, 1, ids, self.time[0] + (wait or 5.0), instant=wait == 0)
        request.set_sources([ReadSource(name, f"{name}:1") for name in sources], "me")
        self.store.waits.add(request, self.time[0])
        self.store.flush()
        return reader, request

    def frames(self, name: str) -> list[pb.GetRequest]:
        return self.peer(name).frames(self.time[0])

    def answer(self, name: str, **frame: object) -> list[pb.GetRequest]:
        """The peer says something; what it is sent in return."""
        self.peer(name).handle(pb.GetResponse(**frame), self.time[0])  # type: ignore[arg-type]
        self.store.flush()
        return self.frames(name)

    def ready(
        self, name: str, ask: pb.Read, *indexes: int, first_lease: int = 1
    ) -> list[pb.GetRequest]:
        count = len(indexes)
        ready = pb.Ready(
            correlation_id=ask.correlation_id,
            indexes=indexes,
            lease_ids=range(first_lease, first_lease + count),
            offsets_bytes=[0] * count,
            generations=[1] * count,
            objects_bytes=[SIZE] * count,
            digests=b"".join(digest(object_of(ask, index)) for index in indexes),
        )
        return self.answer(name, ready=ready)

    def chunk(self, name: str, lease: int, ask: pb.Read, index: int) -> list[pb.GetRequest]:
        return self.chunk_of(name, lease, data_of(object_of(ask, index)))

    def chunk_of(self, name: str, lease: int, data: bytes) -> list[pb.GetRequest]:
        head = pb.ReadChunk(lease_ids=[lease], pieces_bytes=[len(data)])
        self.peer(name).handle(ReadBulk(head, memoryview(data)), self.time[0])
        self.store.flush()
        return self.frames(name)


def object_of(ask: pb.Read, index: int) -> ObjectId:
    return ObjectId(ask.layout_id, unpack(ask.keys)[index])


def data_of(object_id: ObjectId) -> bytes:
    return object_id.key * (SIZE // 16)


def digest(object_id: ObjectId) -> bytes:
    running = start_digest(object_id, SIZE)
    running.update(data_of(object_id))
    return running.digest()


def kinds(frames: list[pb.GetRequest]) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    time = [0.0]
    with make_store(tmp_path, clock=lambda: time[0]) as store:
        network = Network(store, InFlight(store, MIB), time)
        store.set_peers(network)
        yield network
        counts = stat(store)
        assert (counts.leases, counts.reservations, counts.waiters) == (0, 0, 0)
        assert store.table.pinned_bytes == 0
        assert len(network.in_flight) == 0
        assert all(requests.idle for requests in network.requests.values())


def release_all(network: Network, reader: Reader) -> None:
    for lease in reader.ready.values():
        network.store.waits.release(lease)


def test_several_reads_share_one_ask_and_one_fetch(network: Network) -> None:
    readers = [network.read(1, 2, sources=("a",))[0] for _ in range(5)]
    (asked,) = network.frames("a")
    assert unpack(asked.read.keys) == [object_id(1).key, object_id(2).key]
    assert network.frames("a") == []
    (fetch,) = network.ready("a", asked.read, 0, 1)
    assert list(fetch.fetch.lease_ids) == [1, 2]
    assert kinds(network.chunk("a", 1, asked.read, 0)) == ["release"]
    assert kinds(network.chunk("a", 2, asked.read, 1)) == ["release"]
    for reader in readers:
        assert set(reader.ready) == {0, 1}
        release_all(network, reader)
    assert network.store.moved_bytes["peer", "grpc"] == 2 * SIZE


def test_the_first_of_several_sources_is_taken_and_the_other_released(network: Network) -> None:
    reader, _ = network.read(1, sources=("a", "b"))
    (at_a,), (at_b,) = network.frames("a"), network.frames("b")
    assert kinds(network.ready("b", at_b.read, 0)) == ["fetch"]
    assert kinds(network.ready("a", at_a.read, 0)) == ["release"]
    network.chunk("b", 1, at_b.read, 0)
    assert reader.done == 1
    network.time[0] += 2 * RETRY_SECONDS
    assert network.frames("a") == []
    release_all(network, reader)


def test_when_the_faster_source_dies_the_other_is_asked_again(network: Network) -> None:
    reader, _ = network.read(1, sources=("a", "b"))
    (at_a,), (at_b,) = network.frames("a"), network.frames("b")
    network.ready("b", at_b.read, 0)
    network.ready("a", at_a.read, 0)  # released: b is at it
    network.peer("b").closed(network.time[0])
    network.time[0] += 2 * RETRY_SECONDS
    (again,) = network.frames("a")
    assert kinds(network.ready("a", again.read, 0, first_lease=2)) == ["fetch"]
    network.chunk("a", 2, again.read, 0)
    assert reader.done == 1
    release_all(network, reader)


def test_a_source_that_comes_back_is_asked_everything_anew(network: Network) -> None:
    reader, _ = network.read(1, 2, sources=("a",))
    (first,) = network.frames("a")
    network.ready("a", first.read, 0)
    network.peer("a").closed(network.time[0])
    assert stat(network.store).reservations == 0
    assert not reader.done  # a dead source stays a hope
    network.peer("a").opened("e", network.time[0])
    (second,) = network.frames("a")
    assert second.read.correlation_id != first.read.correlation_id
    assert len(unpack(second.read.keys)) == 2
    network.ready("a", second.read, 0, 1)
    for lease, index in ((1, 0), (2, 1)):
        network.chunk("a", lease, second.read, index)
    assert reader.done == 1
    release_all(network, reader)


def test_will_not_come_needs_every_source_and_a_dead_one_never_says_so(network: Network) -> None:
    reader, request = network.read(1, sources=("a", "b"))
    (at_a,), _ = network.frames("a"), network.frames("b")
    missing = pb.Missing(correlation_id=at_a.read.correlation_id, will_not_come=[0])
    network.answer("a", missing=missing)
    network.peer("b").closed(network.time[0])
    network.store.flush()
    assert not reader.done
    network.store.waits.replace_sources(request, [ReadSource("a", "a:1")], "me", network.time[0])
    network.store.flush()
    (again,) = network.frames("a")
    missing = pb.Missing(correlation_id=again.read.correlation_id, will_not_come=[0])
    network.answer("a", missing=missing)
    assert reader.will_not_come == {0}


def test_without_a_wait_a_dead_source_counts_as_not_having_it(network: Network) -> None:
    reader, _ = network.read(1, sources=("a", "b"), wait=0)
    (at_a,) = network.frames("a")
    assert at_a.read.wait.ToSeconds() == 0
    network.answer("a", missing=pb.Missing(correlation_id=1, timed_out=[0]))
    assert not reader.done
    network.peer("b").closed(network.time[0])
    network.store.flush()
    assert reader.timed_out == {0}


def test_waiting_and_instant_reads_are_asked_apart(network: Network) -> None:
    waiting, request = network.read(1, sources=("a",), wait=8)
    instant, _ = network.read(1, sources=("a",), wait=0)
    asked = {frame.read.wait.ToMilliseconds(): frame.read for frame in network.frames("a")}
    assert set(asked) == {0, 8000}
    missing = pb.Missing(correlation_id=asked[0].correlation_id, timed_out=[0])
    network.answer("a", missing=missing)
    assert instant.timed_out == {0}
    assert not waiting.done
    network.store.waits.cancel(request)


def test_cancelling_the_last_read_cancels_at_the_peer(network: Network) -> None:
    _, one = network.read(1, 2, sources=("a",))
    _, two = network.read(2, sources=("a",))
    (asked,) = network.frames("a")
    network.store.waits.cancel(one)
    assert network.frames("a") == []
    network.store.waits.cancel(two)
    (cancel,) = network.frames("a")
    assert cancel.cancel_read.correlation_id == asked.read.correlation_id


def test_what_is_left_of_an_ask_is_cancelled_once_the_rest_was_answered(network: Network) -> None:
    reader, _ = network.read(1, sources=("a",))
    _, two = network.read(2, sources=("a",))
    (asked,) = network.frames("a")
    network.store.waits.cancel(two)
    assert network.frames("a") == []
    assert kinds(network.ready("a", asked.read, 0)) == ["fetch"]
    # Not before the bytes are here: cancelling ends the lease.
    assert kinds(network.chunk("a", 1, asked.read, 0)) == ["release", "cancel_read"]
    release_all(network, reader)


def test_an_object_that_nobody_reads_any_more_is_released(network: Network) -> None:
    _, request = network.read(1, 2, sources=("a",))
    (asked,) = network.frames("a")
    ready = pb.Ready(
        correlation_id=asked.read.correlation_id,
        indexes=[0],
        lease_ids=[9],
        offsets_bytes=[0],
        generations=[1],
        objects_bytes=[SIZE],
        digests=bytes(16),
    )
    network.peer("a").handle(pb.GetResponse(ready=ready), 0.0)
    network.store.waits.cancel(request)
    frames = network.frames("a")
    assert kinds(frames) == ["release", "cancel_read"]


@pytest.mark.parametrize("wait", [0.0, 10.0])
@pytest.mark.parametrize("data", [b"\0" * SIZE, b""])
def test_wrong_bytes_are_reported_and_asked_for_again_a_few_times(
    network: Network, data: bytes, wait: float
) -> None:
    reader, _ = network.read(1, sources=("a",), wait=wait)
    (asked,) = network.frames("a")
    for lease in (1, 2):
        network.ready("a", asked.read, 0, first_lease=lease)
        report, asked = network.chunk_of("a", lease, data)  # which ends the lease as well
        assert list(report.report_bad.lease_ids) == [lease]
        assert kinds([asked]) == ["read"]
    network.ready("a", asked.read, 0, first_lease=3)
    assert kinds(network.chunk_of("a", 3, data)) == ["report_bad"]
    # By now the peer counts as not having it, and nobody else may bring it.
    assert not reader.ready
    assert reader.timed_out if wait == 0 else reader.will_not_come == {0}
    assert reader.done == 1


def test_objects_that_find_no_room_are_asked_for_later(network: Network) -> None:
    slots = [network.store.reserve([object_id(100 + n)], MIB // 2)[0] for n in range(4)]
    reader, _ = network.read(1, sources=("a",))
    (asked,) = network.frames("a")
    assert kinds(network.ready("a", asked.read, 0)) == ["release"]
    network.store.abandon(slots)  # type: ignore[arg-type]
    network.time[0] += 2 * RETRY_SECONDS
    (again,) = network.frames("a")
    network.ready("a", again.read, 0, first_lease=2)
    network.chunk("a", 2, again.read, 0)
    assert reader.done == 1
    release_all(network, reader)


def test_a_window_bounds_what_flies_at_once(network: Network) -> None:
    network.in_flight.window_bytes = 2 * SIZE
    reader, _ = network.read(*range(5), sources=("a",))
    (asked,) = network.frames("a")
    (fetch,) = network.ready("a", asked.read, *range(5))
    assert list(fetch.fetch.lease_ids) == [1, 2]
    for lease in range(1, 6):
        network.chunk("a", lease, asked.read, lease - 1)
    assert reader.done == 1
    release_all(network, reader)
