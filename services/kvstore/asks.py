"""What one peer store is asked and what it answers. No I/O, no clock.

Objects that wants wait for are asked for once, however many wants there are, separately with and
without a wait. What the peer has is fetched (by whichever peer has it first) and committed here,
which fulfils the wants: the peer writes it into the arena where both use NIXL (`landings`), else it
comes as chunks over gRPC. A peer that breaks is asked everything anew when it is back; until then
the wants stay as they are.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from baton.kv.bulk import ReadBulk
from baton.kv.keys import pack
from baton.kv.leased import Leased, leased
from baton.kv.objects import ObjectId
from baton.kv.registry import GRPC, NIXL
from baton.v1 import kvstore_pb2 as pb
from services.kvstore.flights import Flight, Flights
from services.kvstore.landings import Landing, Landings, in_pushes
from services.kvstore.waits import WaitTable
from services.kvstore.wants import Source, Want

ASK_KEYS = 16_384
"""Keys in one Want."""
RETRY_SECONDS = 0.1
"""After a fetched object found no room here, or the peer refused."""
MAX_FAILURES = 3
"""Bad or broken fetches of one object after which this peer counts as not having it."""
STALL_SECONDS = 5.0
"""Without a chunk, while some are awaited, after which other peers may fetch the same objects."""


@dataclass(eq=False, slots=True)
class _Ask:
    """One Want at the peer."""

    number: int
    object_ids: list[ObjectId]
    instant: bool
    unanswered: int
    open: set[ObjectId] = field(default_factory=set)
    """Not answered, and still of interest."""
    leased: int = 0
    """Leases of it that are not given back: cancelling it would end them."""


class Asks:
    """See the module's text.

    Args:
        source: the peer.
        flights: objects on their way, of all peers.
        waits: is told what the peer does not have.
        landings: what the peer is asked to write into the arena.
    """

    def __init__(
        self, source: Source, flights: Flights, waits: WaitTable, landings: Landings
    ) -> None:
        self.source = source
        self.landings = landings
        self._flights = flights
        self._waits = waits
        self._interest: dict[ObjectId, dict[Want, None]] = {}
        self._due: dict[tuple[ObjectId, bool], None] = {}
        """To be asked, with whether it is without a wait."""
        self._asked: dict[tuple[ObjectId, bool], _Ask] = {}
        self._asks: dict[int, _Ask] = {}
        self._fetching: dict[int, tuple[_Ask, Flight]] = {}
        """By the peer's lease."""
        self._heard = 0.0
        """When the last chunk came, or the first was asked for."""
        self._backlog: deque[tuple[_Ask, ObjectId, Leased]] = deque()
        """Leased at the peer, waiting for other flights to end."""
        self._landing: dict[int, _Ask] = {}
        """By the peer's lease, of objects that the peer is asked to write."""
        self._later: deque[tuple[float, ObjectId]] = deque()
        self._failures: dict[ObjectId, int] = {}
        self._number = 0
        self._out: list[pb.GetRequest] = []
        self._releasing: pb.Release | None = None
        """The frame of `_out` that gives leases back."""

    @property
    def idle(self) -> bool:
        """Whether nothing is wanted of this peer."""
        return not self._interest and not self._fetching and self.landings.idle

    # Interest

    def seek(self, want: Want, object_id: ObjectId) -> None:
        """A want waits for an object."""
        self._interest.setdefault(object_id, {})[want] = None
        self._ask_for(object_id, want.instant)

    def forget(self, want: Want, object_id: ObjectId) -> None:
        """It does no longer."""
        wants = self._interest.get(object_id)
        if wants is None or want not in wants:
            return
        del wants[want]
        if wants:
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
        self.landings.opened(epoch, now)

    def closed(self, now: float) -> None:
        """The stream is gone, or could not be opened: what it had begun is to be asked anew."""
        self._out.clear()
        self._releasing = None
        self._asks.clear()
        self._asked.clear()
        self._backlog.clear()
        fetching, self._fetching = self._fetching, {}
        for _, flight in fetching.values():
            self._flights.drop(flight)
        self._landing.clear()
        self.landings.closed(now)
        for object_id, wants in list(self._interest.items()):
            for want in list(wants):
                if want.instant:
                    self._waits.deny_from(want, object_id, self.source, now)
        self._due = {
            (object_id, want.instant): None
            for object_id, wants in self._interest.items()
            for want in wants
        }

    def frames(self, now: float) -> list[pb.GetRequest]:
        """What to send now."""
        while self._later and self._later[0][0] <= now:
            self._ask_again(self._later.popleft()[1])
        self._give_up_what_is_late(now)
        self._start_flights(now)
        groups: dict[tuple[bytes, int, int, int, bool], list[ObjectId]] = {}
        for object_id, instant in self._due:
            layout_id, _, group, shard, part = object_id
            groups.setdefault((layout_id, group, shard, part, instant), []).append(object_id)
        self._due.clear()
        for (*_, instant), object_ids in groups.items():
            for at in range(0, len(object_ids), ASK_KEYS):
                self._ask(object_ids[at : at + ASK_KEYS], instant, now)
        out, self._out = [*self._out, *self.landings.frames(now)], []
        self._releasing = None
        return out

    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> None:
        """Take one frame of the peer in; afterwards send `frames`."""
        if isinstance(response, ReadBulk):
            for lease_id, offset, data in response.pieces():
                self._take_chunk(lease_id, offset, data, now)
            return
        kind = response.WhichOneof("frame")
        if kind == "ready":
            ask = self._asks.get(response.ready.correlation_id)
            if ask is not None:  # else it was cancelled, which ends its leases
                self._take_ready(ask, leased(response.ready))
                self._end_if(response.ready.done, ask)
        elif kind == "nixl_answer":
            self.landings.answered(response.nixl_answer, now)
        elif kind == "push_ended":
            landing = self.landings.ended(response.push_ended.push_id, now)
            if landing is not None:
                self.landed(landing, [False] * len(landing.flights), now, written=False)
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

    def landed(
        self, landing: Landing, right: Sequence[bool], now: float, *, written: bool = True
    ) -> None:
        """A push is over.

        Args:
            landing: the push.
            right: of each of its flights, whether its object is there and was found to be right.
            now: the time.
            written: whether the peer says that it has written the objects.
        """
        if not written:
            self._flights.failures[NIXL] += 1
        kept = self._flights.landed(list(landing.flights.values()), right)
        for (lease_id, flight), is_right, is_kept in zip(
            landing.flights.items(), right, kept, strict=True
        ):
            ask = self._landing.pop(lease_id, None)
            if ask is None:
                continue  # the stream that it was leased on is gone
            if not is_kept:
                self._failed(flight.slot.object_id, now)
            if written and not is_right:
                self._report(ask, lease_id)
            else:
                self._release(ask, lease_id)

    # Inside

    def _ask_for(self, object_id: ObjectId, instant: bool) -> None:
        if (object_id, instant) not in self._asked:
            self._due[object_id, instant] = None

    def _ask_again(self, object_id: ObjectId) -> None:
        """Whatever was known of the object is void; ask if somebody still wants it."""
        for instant in {want.instant for want in self._interest.get(object_id, ())}:
            self._ask_for(object_id, instant)

    def _ask(self, object_ids: list[ObjectId], instant: bool, now: float) -> None:
        self._number += 1
        ask = _Ask(self._number, object_ids, instant, len(object_ids), set(object_ids))
        self._asks[self._number] = ask
        deadline = now
        for object_id in object_ids:
            self._asked[object_id, instant] = ask
            deadline = max(deadline, *(want.deadline for want in self._interest[object_id]))
        wait = Duration()
        if not instant:
            wait.FromMilliseconds(max(1, int((deadline - now) * 1000)))
        frame = pb.Want(
            correlation_id=self._number,
            layout_id=object_ids[0].layout_id,
            keys=pack([object_id.key for object_id in object_ids]),
            part=object_ids[0].message(),
            wait=wait,
        )
        self._out.append(pb.GetRequest(want=frame))

    def _take_ready(self, ask: _Ask, objects: Sequence[Leased]) -> None:
        ask.leased += len(objects)
        for one in objects:
            self._backlog.append((ask, self._answered(ask, one.which), one))

    def _end_if(self, done: bool, ask: _Ask) -> None:
        """The peer has answered an ask in full."""
        if done:
            self._asks.pop(ask.number, None)

    def _start_flights(self, now: float) -> None:
        if not self._backlog or self.landings.undecided(now):
            return
        started: dict[int, tuple[_Ask, Flight]] = {}
        up = self.landings.up
        for (tenant, object_bytes), group in self._next_of_backlog(now).items():
            answers = self._flights.begin_all(
                [object_id for _, object_id, _ in group],
                [one.digest for _, _, one in group],
                object_bytes,
                tenant,
                # Chunks are written by the store itself; a peer may write when least expected.
                writer=self.landings if up else None,
            )
            for (ask, object_id, one), flight in zip(group, answers, strict=True):
                if isinstance(flight, Flight):
                    started[one.lease_id] = (ask, flight)
                else:
                    self._put_off(ask, object_id, one, now)
        if up:
            self._landing.update({lease_id: ask for lease_id, (ask, _) in started.items()})
            for part in in_pushes({lease_id: flight for lease_id, (_, flight) in started.items()}):
                self.landings.begin(part, [self._flights.offset(one) for one in part.values()], now)
        elif started:
            if not self._fetching:
                self._heard = now
            self._fetching.update(started)
            self._out.append(pb.GetRequest(fetch=pb.Fetch(lease_ids=started)))

    def _next_of_backlog(
        self, now: float
    ) -> dict[tuple[str, int], list[tuple[_Ask, ObjectId, Leased]]]:
        """What may fly now, by tenant and length; what need not is put off."""
        groups: dict[tuple[str, int], list[tuple[_Ask, ObjectId, Leased]]] = {}
        chosen = set()
        room = self._flights.room_bytes
        while self._backlog and room > 0:
            ask, object_id, one = self._backlog.popleft()
            wants = self._interest.get(object_id)
            if wants is None or object_id in self._flights or object_id in chosen:
                self._put_off(ask, object_id, one, now)
                continue
            chosen.add(object_id)
            room -= one.object_bytes
            tenant = next(iter(wants)).tenant
            groups.setdefault((tenant, one.object_bytes), []).append((ask, object_id, one))
        return groups

    def _put_off(self, ask: _Ask, object_id: ObjectId, one: Leased, now: float) -> None:
        """No room, or another peer is faster: nothing is left to do later unless that fails."""
        self._release(ask, one.lease_id)
        self._later.append((now + RETRY_SECONDS, object_id))

    def _give_up_what_is_late(self, now: float) -> None:
        """Let other peers fetch what this one should have sent by now."""
        late = []
        if self._fetching and self._heard + STALL_SECONDS <= now:
            self._flights.failures[GRPC] += 1
            for lease_id, (ask, flight) in self._fetching.items():
                self._flights.drop(flight)
                late.append((lease_id, ask, flight))
            self._fetching.clear()
        for landing in self.landings.overdue(now):
            self._flights.failures[NIXL] += 1
            late += [
                (lease_id, self._landing.pop(lease_id), flight)
                for lease_id, flight in landing.flights.items()
            ]
        for lease_id, ask, flight in late:
            self._failed(flight.slot.object_id, now)
            self._release(ask, lease_id)

    def _take_chunk(self, lease_id: int, offset: int, data: memoryview, now: float) -> None:
        ask, flight = self._fetching.get(lease_id, (None, None))
        if ask is None or flight is None:
            return
        self._heard = now
        object_id = flight.slot.object_id
        if not self._flights.write(flight, offset, data):
            self._flights.drop(flight)
            self._failed(object_id, now)
        elif data.nbytes and flight.got < flight.slot.object_bytes:
            return
        elif not self._flights.finish(flight):
            # Gone while it was sent, or wrong: in both cases the peer looks after it.
            del self._fetching[lease_id]
            self._report(ask, lease_id)
            self._failed(object_id, now)
            return
        del self._fetching[lease_id]
        self._release(ask, lease_id)

    def _failed(self, object_id: ObjectId, now: float) -> None:
        if object_id not in self._interest:
            return
        failures = self._failures[object_id] = self._failures.get(object_id, 0) + 1
        if failures < MAX_FAILURES:
            self._ask_again(object_id)
        else:
            for want in list(self._interest[object_id]):
                self._waits.deny_from(want, object_id, self.source, now)

    def _take_missing(self, ask: _Ask, missing: pb.Missing, now: float) -> None:
        for index in missing.will_not_come:
            self._deny(self._answered(ask, index), ask.instant, now)
        for index in missing.timed_out:
            object_id = self._answered(ask, index)
            if ask.instant:
                self._deny(object_id, ask.instant, now)
            else:  # wants that came later may wait longer
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
        for want in list(self._interest.get(object_id, ())):
            if want.instant == instant:
                self._waits.deny_from(want, object_id, self.source, now)

    def _release(self, ask: _Ask, lease_id: int) -> None:
        if self._releasing is None:
            self._out.append(pb.GetRequest(release=pb.Release()))
            self._releasing = self._out[-1].release
        self._releasing.lease_ids.append(lease_id)
        self._let_go(ask)

    def _report(self, ask: _Ask, lease_id: int) -> None:
        """The object is not what it should be: the peer drops it, and the lease."""
        self._out.append(pb.GetRequest(report_bad=pb.ReportBad(lease_ids=[lease_id])))
        self._let_go(ask)

    def _let_go(self, ask: _Ask) -> None:
        ask.leased -= 1
        self._cancel_if_unneeded(ask)

    def _cancel_if_unneeded(self, ask: _Ask) -> None:
        """End a want at the peer that has only keys left that nobody is interested in."""
        if ask.open or ask.leased or not ask.unanswered:
            return
        if self._asks.pop(ask.number, None) is not None:
            frame = pb.CancelWant(correlation_id=ask.number)
            self._out.append(pb.GetRequest(cancel_want=frame))
