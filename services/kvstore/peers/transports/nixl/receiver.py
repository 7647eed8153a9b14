"""The transport `nixl`: the peer writes objects directly into slots of this store."""

from collections.abc import Hashable, Iterator, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire.bulk import ReadBulk
from baton.settings import PeerSettings
from baton.settings.transports import NIXL
from services.kvstore.memory.slot import Slot
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.transfer import Transfer
from services.kvstore.peers.transports.base import PeerTransport
from services.kvstore.peers.transports.nixl.push import Push, in_pushes, size_of
from services.kvstore.peers.transports.nixl.thread import NixlThread

SLOWEST_BYTES_PER_SECOND = 16 * 1024 * 1024
"""Bytes in flight extend the deadline of a push at this rate."""


class NixlReceiver(PeerTransport):
    """The objects that one peer is to write into this store's arena.

        offer ─▶ accepted ─▶ up ── a push fails, or takes too long ──▶ down ── later ─▶ offer

    A peer with a push may write at any time until it reports that it does not, or is proven dead:
    slots of a push that was given up stay in quarantine until then, and meanwhile no more NIXL
    requests are sent to the peer. Bounded by the window of InFlight.

    Args:
        in_flight: the transfers of all peers, and their slots.
        nixl: this store's agent.
        push_ids: numbers of pushes; one sequence for all peers.
        settings: time to wait for the first response to an offer, deadline of a push, and pauses
            after failures.
    """

    def __init__(
        self,
        in_flight: InFlight,
        nixl: NixlThread,
        push_ids: Iterator[int],
        settings: PeerSettings = PeerSettings(),
    ) -> None:
        self._settings = settings
        self._in_flight = in_flight
        self._nixl = nixl
        self._push_ids = push_ids
        self._push_seconds = settings.nixl_push_seconds
        self._first_retry = self._retry = settings.nixl_retry_seconds
        self._epoch = ""
        self._open = self._up = self._offered = False
        self._answer_until = 0.0
        """Until when objects wait for a response to the offer."""
        self._next_offer = 0.0
        self._agent = ""
        self._live: dict[int, Push] = {}
        self._given_up: dict[int, list[Slot]] = {}
        """Slots in quarantine, by push."""
        self._out: list[pb.GetRequest] = []

    @property
    def writer(self) -> Hashable | None:
        return self

    @property
    def is_up(self) -> bool:
        return self._up and not self._given_up

    def undecided(self, now: float) -> bool:
        return self._open and not self._up and now < self._answer_until

    @property
    def idle(self) -> bool:
        return not self._live and not self._given_up

    @property
    def quarantined(self) -> int:
        """Slots that the peer may still write to after their transfers were given up."""
        return sum(map(len, self._given_up.values()))

    # The stream

    def opened(self, epoch: str, now: float) -> None:
        if epoch != self._epoch:
            self.peer_died()
            self._epoch, self._next_offer, self._retry = epoch, 0.0, self._first_retry
        self._open, self._offered = True, False
        self._out.clear()
        self._nixl.start()
        if self._given_up:
            self._abandon(list(self._given_up))
        elif now >= self._next_offer:
            self._answer_until = now + self._settings.nixl_answer_seconds

    def closed(self, now: float) -> None:
        if self._up and self._live:
            self._offer_later(now)
        self._open = self._up = False
        self._answer_until = 0.0
        self._out.clear()
        self._give_up()

    def peer_died(self) -> None:
        """Free the slots in quarantine: the peer is proven dead, and no longer writes."""
        while self._given_up:
            self._in_flight.release(self._given_up.popitem()[1])

    def frames(self, now: float) -> list[pb.GetRequest]:
        nixl = self._nixl
        if nixl.failure:
            self._answer_until = 0.0
        elif (
            self._open
            and nixl.endpoint is not None
            and not (self._up or self._offered or self._given_up)
            and now >= self._next_offer
        ):
            self._offered = True
            offer = pb.NixlOffer(endpoint=nixl.endpoint.message())
            self._out.append(pb.GetRequest(nixl_offer=offer))
            nixl.wake()
        out, self._out = self._out, []
        return out

    def handle(self, response: pb.GetResponse | ReadBulk, now: float) -> Sequence[Transfer]:
        if isinstance(response, ReadBulk):
            return ()
        if response.HasField("nixl_answer"):
            self._answer_until = 0.0
            self._offered = False
            self._agent = response.nixl_answer.agent
            self._up = bool(self._agent)
            if not self._up:
                self._offer_later(now)
        elif response.HasField("push_ended"):
            push = self._take(response.push_ended.push_id)
            if push is not None:  # it is still awaited, so it failed
                self._up = False
                self._offer_later(now)
                self._in_flight.failures[NIXL] += 1
                self._in_flight.fail(push.transfers)
                return push.transfers
        return ()

    # Pushes

    def begin(self, transfers: Sequence[Transfer], now: float) -> None:
        for part in in_pushes(transfers):
            push_id = next(self._push_ids)
            size = sum(map(size_of, part))
            ahead = sum(push.size_bytes for push in self._live.values())
            patience = self._push_seconds + (ahead + size) / SLOWEST_BYTES_PER_SECOND
            self._live[push_id] = Push(push_id, part, size, now + patience)
            frame = pb.Push(
                push_id=push_id,
                lease_ids=[one.leased.lease_id for one in part if one.leased is not None],
                offsets_bytes=[self._in_flight.offset(transfer) for transfer in part],
            )
            self._out.append(pb.GetRequest(push=frame))
            self._nixl.expected += 1
        self._nixl.wake()

    def written(self, agent: str, push_id: int) -> Push | None:
        """Handle an agent's report that it has written a push; None: it is not awaited.

        The transfers of a returned push have not ended: check them, then `finish` it.
        """
        if agent != self._agent:
            return None
        push = self._take(push_id)
        if push is not None:
            self._retry = self._first_retry
        return push

    def finish(self, push: Push, right: Sequence[bool]) -> Sequence[Transfer]:
        """End the transfers of a push that was written; return them.

        Args:
            push: the push.
            right: for each of its transfers, whether its bytes were found right.
        """
        self._in_flight.finish_written(push.transfers, right)
        return push.transfers

    def overdue(self, now: float) -> Sequence[Transfer]:
        if not any(push.deadline <= now for push in self._live.values()):
            return ()
        self._up = False
        self._offer_later(now)
        self._in_flight.failures[NIXL] += len(self._live)
        # Other transfers on this connection are not faster.
        self._abandon(list(self._live))
        return self._give_up()

    def _take(self, push_id: int) -> Push | None:
        """Remove a push that the peer no longer writes; return it if it was awaited."""
        given_up = self._given_up.pop(push_id, None)
        if given_up is not None:
            self._in_flight.release(given_up)
            return None
        push = self._live.pop(push_id, None)
        if push is not None:
            self._nixl.expected -= 1
        return push

    def _give_up(self) -> list[Transfer]:
        """Quarantine the slots of every current push; return its transfers, which failed."""
        transfers: list[Transfer] = []
        for push_id, push in self._live.items():
            self._nixl.expected -= 1
            self._given_up[push_id] = self._in_flight.quarantine(push.transfers)
            transfers += push.transfers
        self._live = {}
        return transfers

    def _abandon(self, push_ids: list[int]) -> None:
        frame = pb.AbandonPushes(push_ids=push_ids)
        self._out.append(pb.GetRequest(abandon_pushes=frame))

    def _offer_later(self, now: float) -> None:
        self._next_offer = now + self._retry
        self._retry = min(2 * self._retry, self._settings.nixl_max_retry_seconds)
