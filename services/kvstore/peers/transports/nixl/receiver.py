"""Objects that one peer store was asked to write into slots of this one. No I/O, no clock.

    offer ─▶ accepted ─▶ UP ── a push fails, or comes to nothing in time ──▶ DOWN ── later ─▶ offer

A peer that was asked to write may write at any time until it says that it does not, or is proven
dead: slots of a push that was given up stay in quarantine until then, and as long as there are any
the peer is asked for nothing more by NIXL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from baton.internal.v1 import kvstore_pb2 as pb
from services.kvstore.peers.inflight import Flight, InFlight
from services.kvstore.peers.transports.nixl.thread import NixlThread

MEET_SECONDS = 2.0
"""How long objects wait for the first answer to an offer, before they are fetched over gRPC."""
PUSH_BYTES = 32 * 1024 * 1024
"""In one push, if its objects are smaller: one is checked while the next is written. Between two
pushes the wire is silent for a round trip; shorter ones were measured to be slower."""
PUSH_OBJECTS = 1024
PUSH_SECONDS = 2.0
"""How long a push may take, and that much more for what is under way:"""
SLOWEST_BYTES_PER_SECOND = 16 * 1024 * 1024
FIRST_RETRY_SECONDS = 2.0
LAST_RETRY_SECONDS = 60.0


@dataclass(eq=False, slots=True)
class Landing:
    """One push."""

    push_id: int
    flights: dict[int, Flight]
    """By the peer's lease."""
    size: int
    deadline: float


def in_pushes(flights: dict[int, Flight]) -> Iterator[dict[int, Flight]]:
    """Cut what is to be written into pushes."""
    part: dict[int, Flight] = {}
    size = 0
    for lease_id, flight in flights.items():
        if part and (size + flight.slot.object_bytes > PUSH_BYTES or len(part) >= PUSH_OBJECTS):
            yield part
            part, size = {}, 0
        part[lease_id] = flight
        size += flight.slot.object_bytes
    if part:
        yield part


class NixlReceiver:
    """See the module's text.

    Args:
        flights: whose slots are written to.
        nixl: this store's agent; None: everything goes over gRPC.
        numbers: of pushes; one sequence for all peers.
        push_seconds: see PUSH_SECONDS.
        retry_seconds: see FIRST_RETRY_SECONDS.
    """

    def __init__(
        self,
        flights: InFlight,
        nixl: NixlThread | None,
        numbers: Iterator[int],
        *,
        push_seconds: float = PUSH_SECONDS,
        retry_seconds: float = FIRST_RETRY_SECONDS,
    ) -> None:
        self._in_flight = flights
        self._nixl = nixl
        self._numbers = numbers
        self._push_seconds = push_seconds
        self._first_retry = self._retry = retry_seconds
        self._epoch = ""
        self._open = self._up = self._offered = False
        self._patience = 0.0
        """Until when an answer is waited for."""
        self._next_offer = 0.0
        self._agent = ""
        self._live: dict[int, Landing] = {}
        self._given_up: dict[int, Sequence[Flight]] = {}
        self._out: list[pb.GetRequest] = []

    @property
    def up(self) -> bool:
        """Whether the peer may be asked to write."""
        return self._up and not self._given_up

    @property
    def quarantined(self) -> int:
        """Slots that the peer may still write to."""
        return sum(len(flights) for flights in self._given_up.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is awaited of the peer."""
        return not self._live and not self._given_up

    def undecided(self, now: float) -> bool:
        """Whether it is about to be known if the peer accepts."""
        return self._open and not self._up and now < self._patience

    # The connection

    def opened(self, epoch: str, now: float) -> None:
        """A stream to the peer is there. Another epoch than before: the peer of then is dead."""
        if epoch != self._epoch:
            self.died()
            self._epoch, self._next_offer, self._retry = epoch, 0.0, self._first_retry
        self._open, self._offered = True, False
        self._out.clear()
        if self._nixl is None:
            return
        self._nixl.start()
        if self._given_up:
            self._abandon(list(self._given_up))
        elif now >= self._next_offer:
            self._patience = now + MEET_SECONDS

    def closed(self, now: float) -> list[Landing]:
        """The stream is gone; answers what was under way, which is given up."""
        if self._up and self._live:
            self._later(now)
        self._open = self._up = False
        self._patience = 0.0
        self._out.clear()
        return [self._give_up(push_id) for push_id in list(self._live)]

    def died(self) -> None:
        """The peer is proven dead: it writes no more."""
        while self._given_up:
            self._in_flight.release(self._given_up.popitem()[1])

    def frames(self, now: float) -> list[pb.GetRequest]:
        """What to send now."""
        nixl = self._nixl
        if nixl is not None and nixl.failure:
            self._patience = 0.0
        elif (
            self._open
            and nixl is not None
            and nixl.endpoint is not None
            and not (self._up or self._offered or self._given_up)
            and now >= self._next_offer
        ):
            self._offered = True
            offer = pb.NixlOffer(endpoint=nixl.endpoint.message())
            self._out.append(pb.GetRequest(nixl_offer=offer))
            nixl.attend()
        out, self._out = self._out, []
        return out

    def answered(self, answer: pb.NixlAnswer, now: float) -> None:
        """The peer accepts or refuses."""
        self._patience = 0.0
        self._offered = False
        self._up = bool(answer.agent)
        self._agent = answer.agent
        if not self._up:
            self._later(now)

    # Pushes

    def begin(self, flights: dict[int, Flight], offsets: Sequence[int], now: float) -> None:
        """Ask the peer to write.

        Args:
            flights: by the peer's lease.
            offsets: of their slots in this store's file.
            now: the time.
        """
        number = next(self._numbers)
        size = sum(flight.slot.object_bytes for flight in flights.values())
        ahead = sum(landing.size for landing in self._live.values())
        patience = self._push_seconds + (ahead + size) / SLOWEST_BYTES_PER_SECOND
        self._live[number] = Landing(number, flights, size, now + patience)
        push = pb.Push(push_id=number, lease_ids=flights, offsets_bytes=offsets)
        self._out.append(pb.GetRequest(push=push))
        if self._nixl is not None:
            self._nixl.expected += 1
            self._nixl.attend()

    def arrived(self, agent: str, push_id: int) -> Landing | None:
        """An agent says that it has written a push. None: it is not awaited (any more)."""
        if agent != self._agent:
            return None
        if push_id in self._given_up:
            self._in_flight.release(self._given_up.pop(push_id))
            return None
        landing = self._take(push_id)
        if landing is not None:
            self._retry = self._first_retry
        return landing

    def ended(self, push_id: int, now: float) -> Landing | None:
        """The peer writes no more for a push; the push, if it was still awaited and so failed."""
        if push_id in self._given_up:
            self._in_flight.release(self._given_up.pop(push_id))
            return None
        landing = self._take(push_id)
        if landing is not None:
            self._up = False
            self._later(now)
        return landing

    def overdue(self, now: float) -> list[Landing]:
        """Gives up what took too long, and answers it."""
        late = [number for number, landing in self._live.items() if landing.deadline <= now]
        if not late:
            return []
        self._up = False
        self._later(now)
        # What is under way elsewhere on this connection is not faster.
        late = list(self._live)
        self._abandon(late)
        return [self._give_up(number) for number in late]

    # Inside

    def _take(self, push_id: int) -> Landing | None:
        landing = self._live.pop(push_id, None)
        if landing is not None and self._nixl is not None:
            self._nixl.expected -= 1
        return landing

    def _give_up(self, push_id: int) -> Landing:
        landing = self._live[push_id]
        self._take(push_id)
        flights = list(landing.flights.values())
        for flight in flights:
            self._in_flight.quarantine(flight)
        self._given_up[push_id] = flights
        return landing

    def _abandon(self, push_ids: list[int]) -> None:
        self._out.append(pb.GetRequest(abandon_pushes=pb.AbandonPushes(push_ids=push_ids)))

    def _later(self, now: float) -> None:
        self._next_offer = now + self._retry
        self._retry = min(2 * self._retry, LAST_RETRY_SECONDS)
