"""What one peer store is asked and what it answers. No I/O, no clock.

Objects that reads wait for are asked for once, however many reads there are, separately with and
without a wait. What the peer has is fetched (by whichever peer has it first, see `transfers`) and
committed here, which fulfils the requests. A peer that breaks is asked everything anew when it is
back; until then the requests stay as they are.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.keys import pack
from baton.kv.objects import ObjectId
from baton.kv.wire.bulk import ReadBulk
from baton.kv.wire.lease import LeasedObject, parse_leases
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.receiving import End, Ended, PeerTransfers
from services.kvstore.peers.transports.nixl.receiver import Landing, NixlReceiver
from services.kvstore.reads.read_request import ReadRequest, Source
from services.kvstore.reads.wait_table import WaitTable

ASK_KEYS = 16_384
"""Keys in one ReadRequest."""
RETRY_SECONDS = 0.1
"""After a fetched object found no room here, or the peer refused."""
MAX_FAILURES = 3
"""Bad or broken fetches of one object after which this peer counts as not having it."""


@dataclass(eq=False, slots=True)
class _Ask:
    """One ReadRequest at the peer."""

    number: int
    object_ids: list[ObjectId]
    instant: bool
    unanswered: int
    open: set[ObjectId] = field(default_factory=set)
    """Not answered, and still of interest."""
    leased: int = 0
    """Leases of it that are not given back: cancelling it would end them."""


class PeerRequests:
    """See the module's text.

    Args:
        source: the peer.
        flights: objects on their way, of all peers.
        waits: is told what the peer does not have.
        receiver: what the peer is asked to write into the arena.
    """

    def __init__(
        self, source: Source, flights: InFlight, waits: WaitTable, receiver: NixlReceiver
    ) -> None:
        self.source = source
        self.transfers: PeerTransfers[_Ask] = PeerTransfers(flights, receiver, self._tenant_of)
        self._waits = waits
        self._interest: dict[ObjectId, dict[ReadRequest, None]] = {}
        self._due: dict[tuple[ObjectId, bool], None] = {}
        """To be asked, with whether it is without a wait."""
        self._asked: dict[tuple[ObjectId, bool], _Ask] = {}
        self._asks: dict[int, _Ask] = {}
        self._later: deque[tuple[float, ObjectId]] = deque()
        self._failures: dict[ObjectId, int] = {}
        self._number = 0
        self._out: list[pb.GetRequest] = []
        self._releasing: pb.Release | None = None
        """The frame of `_out` that gives leases back."""

    @property
    def idle(self) -> bool:
        """Whether nothing is wanted of this peer."""
        return not self._interest and self.transfers.idle

    # Interest

    def seek(self, request: ReadRequest, object_id: ObjectId) -> None:
        """A request waits for an object."""
        self._interest.setdefault(object_id, {})[request] = None
        self._ask_for(object_id, request.instant)

    def forget(self, request: ReadRequest, object_id: ObjectId) -> None:
        """It does no longer."""
        requests = self._interest.get(object_id)
        if requests is None or request not in requests:
            return
        del requests[request]
        if requests:
            return
        del self._interest[object_id]
        self._failures.pop(object_id, None)
        for instant in (False, True):
            self._due.pop((object_id, instant), None)
            ask = self._asked.pop((object_id, instant), None)
            if ask is not None:
                ask.open.discard(object_id)
                self._cancel_if_unneeded(ask)

    # The connection

    def opened(self, epoch: str, now: float) -> None:
        """A stream to the peer is there; it knows nothing.

        Args:
            epoch: changes when the peer starts anew.
            now: the time.
        """
        self._out.clear()
        self._releasing = None
        self.transfers.receiver.opened(epoch, now)

    def closed(self, now: float) -> None:
        """The stream is gone, or could not be opened: what it had begun is to be asked anew."""
        self._out.clear()
        self._releasing = None
        self._asks.clear()
        self._asked.clear()
        self.transfers.closed(now)
        for object_id, requests in list(self._interest.items()):
            for request in list(requests):
                if request.instant:
                    self._waits.mark_unavailable_at(request, object_id, self.source, now)
        self._due = {
            (object_id, request.instant): None
            for object_id, requests in self._interest.items()
            for request in requests
        }

    def frames(self, now: float) -> list[pb.GetRequest]:
        """What to send now."""
        while self._later and self._later[0][0] <= now:
            self._ask_again(self._later.popleft()[1])
        self._settle(self.transfers.overdue(now), now)
        self._settle(self.transfers.start(now), now)
        groups: dict[tuple[bytes, int, int, int, bool], list[ObjectId]] = {}
        for object_id, instant in self._due:
            layout_id, _, group, shard, part = object_id
            groups.setdefault((layout_id, group, shard, part, instant), []).append(object_id)
        self._due.clear()
        for (*_, instant), object_ids in groups.items():
            for at in range(0, len(object_ids), ASK_KEYS):
                self._ask(object_ids[at : at + ASK_KEYS], instant, now)
        out, self._out = [*self._out, *self.transfers.frames(now)], []
        self._releasing = None
        return out

    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> None:
        """Take one frame of the peer in; afterwards send `frames`."""
        if isinstance(response, ReadBulk):
            for lease_id, offset, data in response.pieces():
                self._settle(self.transfers.take_chunk(lease_id, offset, data, now), now)
            return
        kind = response.WhichOneof("frame")
        if kind == "ready":
            ask = self._asks.get(response.ready.correlation_id)
            if ask is not None:  # else it was cancelled, which ends its leases
                self._take_ready(ask, parse_leases(response.ready))
                self._end_if(response.ready.done, ask)
        elif kind == "nixl_answer":
            self.transfers.receiver.answered(response.nixl_answer, now)
        elif kind == "push_ended":
            self._settle(self.transfers.push_ended(response.push_ended.push_id, now), now)
        elif kind == "missing":
            ask = self._asks.get(response.missing.correlation_id)
            if ask is not None:
                self._take_missing(ask, response.missing, now)
                self._end_if(response.missing.done, ask)
        elif kind == "error":
            ask = self._asks.pop(response.error.correlation_id, None)
            if ask is not None:
                for object_id in ask.open:
                    self._asked.pop((object_id, ask.instant), None)
                    self._later.append((now + RETRY_SECONDS, object_id))

    def landed(self, landing: Landing, right: Sequence[bool], now: float) -> None:
        """The peer has written a push; afterwards send `frames`. See `PeerTransfers.landed`."""
        self._settle(self.transfers.landed(landing, right), now)

    # Inside

    def _ask_for(self, object_id: ObjectId, instant: bool) -> None:
        if (object_id, instant) not in self._asked:
            self._due[object_id, instant] = None

    def _ask_again(self, object_id: ObjectId) -> None:
        """Whatever was known of the object is void; ask if somebody still wants it."""
        for instant in {request.instant for request in self._interest.get(object_id, ())}:
            self._ask_for(object_id, instant)

    def _ask(self, object_ids: list[ObjectId], instant: bool, now: float) -> None:
        self._number += 1
        ask = _Ask(self._number, object_ids, instant, len(object_ids), set(object_ids))
        self._asks[self._number] = ask
        deadline = now
        for object_id in object_ids:
            self._asked[object_id, instant] = ask
            deadline = max(deadline, *(request.deadline for request in self._interest[object_id]))
        wait = Duration()
        if not instant:
            wait.FromMilliseconds(max(1, int((deadline - now) * 1000)))
        frame = pb.Read(
            correlation_id=self._number,
            layout_id=object_ids[0].layout_id,
            keys=pack([object_id.key for object_id in object_ids]),
            part=object_ids[0].message(),
            wait=wait,
        )
        self._out.append(pb.GetRequest(read=frame))

    def _take_ready(self, ask: _Ask, objects: Sequence[LeasedObject]) -> None:
        ask.leased += len(objects)
        for one in objects:
            self.transfers.expect(ask, self._answered(ask, one.which), one)

    def _end_if(self, done: bool, ask: _Ask) -> None:
        """The peer has answered an ask in full."""
        if done:
            self._asks.pop(ask.number, None)

    def _tenant_of(self, object_id: ObjectId) -> str | None:
        """On whose share an object is counted; None where nobody wants it any more."""
        requests = self._interest.get(object_id)
        return None if requests is None else next(iter(requests)).tenant

    def _settle(self, ended: Iterable[Ended[_Ask]], now: float) -> None:
        """Give the leases back of what came, or did not."""
        for ask, object_id, lease_id, end in ended:
            if end is End.PUT_OFF:
                self._later.append((now + RETRY_SECONDS, object_id))
            elif end is not End.KEPT:
                self._failed(object_id, now)
            if end is End.WRONG:
                # The peer drops it, and the lease.
                self._out.append(pb.GetRequest(report_bad=pb.ReportBad(lease_ids=[lease_id])))
            else:
                self._release(lease_id)
            ask.leased -= 1
            self._cancel_if_unneeded(ask)

    def _failed(self, object_id: ObjectId, now: float) -> None:
        if object_id not in self._interest:
            return
        failures = self._failures[object_id] = self._failures.get(object_id, 0) + 1
        if failures < MAX_FAILURES:
            self._ask_again(object_id)
        else:
            for request in list(self._interest[object_id]):
                self._waits.mark_unavailable_at(request, object_id, self.source, now)

    def _take_missing(self, ask: _Ask, missing: pb.Missing, now: float) -> None:
        for index in missing.will_not_come:
            self._deny(self._answered(ask, index), ask.instant, now)
        for index in missing.timed_out:
            object_id = self._answered(ask, index)
            if ask.instant:
                self._deny(object_id, ask.instant, now)
            else:  # requests that came later may wait longer
                self._later.append((now + RETRY_SECONDS, object_id))
        self._cancel_if_unneeded(ask)

    def _answered(self, ask: _Ask, index: int) -> ObjectId:
        """Note that the peer answered for one object."""
        object_id = ask.object_ids[index]
        ask.unanswered -= 1
        ask.open.discard(object_id)
        self._asked.pop((object_id, ask.instant), None)
        return object_id

    def _deny(self, object_id: ObjectId, instant: bool, now: float) -> None:
        for request in list(self._interest.get(object_id, ())):
            if request.instant == instant:
                self._waits.mark_unavailable_at(request, object_id, self.source, now)

    def _release(self, lease_id: int) -> None:
        if self._releasing is None:
            self._out.append(pb.GetRequest(release=pb.Release()))
            self._releasing = self._out[-1].release
        self._releasing.lease_ids.append(lease_id)

    def _cancel_if_unneeded(self, ask: _Ask) -> None:
        """End a request at the peer that has only keys left that nobody is interested in."""
        if ask.open or ask.leased or not ask.unanswered:
            return
        if self._asks.pop(ask.number, None) is not None:
            frame = pb.CancelRead(correlation_id=ask.number)
            self._out.append(pb.GetRequest(cancel_read=frame))
