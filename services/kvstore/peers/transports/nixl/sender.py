"""Writes into other stores' arenas by NIXL, at their request."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import PAGE_BYTES
from baton.settings.transports import NIXL
from baton.telemetry.logs import get_logger
from services.kvstore.memory.slot import Slot
from services.kvstore.peers.transports.nixl.endpoint import Endpoint, NixlError, agent_name
from services.kvstore.peers.transports.nixl.push import NOTIFICATION
from services.kvstore.peers.transports.nixl.thread import NixlThread, NixlWriteRequest
from services.kvstore.sessions import ClientSession
from services.kvstore.store import GET, Store

log = get_logger(__name__)

MAX_PUSHES = 256
"""Most pushes in progress per store; more are rejected."""
MAX_ABANDONED = 4096
"""Most pushes in one AbandonPushes."""

Send = Callable[[pb.GetResponse], object]


@dataclass(eq=False, slots=True)
class _Remote:
    """A store that offered its memory."""

    endpoint: Endpoint
    streams: dict["PushStream", None] = field(default_factory=dict)
    live: dict[int, bool] = field(default_factory=dict)
    """Pushes in progress, with whether they were abandoned."""
    floor: int = 0
    """Pushes up to here were abandoned: a late one, from an older stream, is rejected."""
    broken: bool = False
    """Whether a write failed: the agent must then be added again."""


class NixlSender:
    """Writes leased objects into stores that offered their memory. Owned by the process.

    A push ends when NIXL reports that its write is complete, and never before: until then the
    requesting store keeps the destination slots. It abandons pushes that it gave up, on any stream
    that it then has, and is notified as soon as they have ended. Bounded by MAX_PUSHES per store.

    Args:
        store: whose objects are written.
        nixl: the thread that writes; None: offers are rejected.
    """

    def __init__(self, store: Store, nixl: NixlThread | None) -> None:
        self._store = store
        self._nixl = nixl
        self._remotes: dict[str, _Remote] = {}
        """Stores by agent."""

    @property
    def live(self) -> int:
        """Number of pushes in progress."""
        return sum(len(remote.live) for remote in self._remotes.values())

    def stream(self, session: ClientSession, send: Send) -> "PushStream":
        """Return the NIXL part of a session's Get stream; `send` queues its responses."""
        return PushStream(self, agent_name(session.client_id, session.incarnation), send)

    def offer(self, stream: "PushStream", offer: pb.NixlOffer) -> None:
        """Add a store's agent, and respond."""
        if self._nixl is None:
            stream.refuse("this store does not use NIXL")
            return
        name = stream.agent
        try:
            endpoint = Endpoint.checked(offer.endpoint, name)
        except NixlError as error:
            stream.refuse(str(error))
            return
        remote = self._remotes.get(name)
        if remote is None:
            remote = self._remotes[name] = _Remote(endpoint)
        elif remote.broken or remote.endpoint != endpoint:
            if remote.live:
                stream.refuse("pushes are in progress")
                return
            self._nixl.remove(name)
            remote.endpoint, remote.broken = endpoint, False
        remote.streams[stream] = None
        nixl = self._nixl
        nixl.start()

        def added(failure: str) -> None:
            if failure:
                remote.broken = True
                log.info("kv.nixl.peer_unreachable", peer=name, error=failure)
                stream.refuse(failure)
            elif nixl.endpoint is not None:
                stream.accept(nixl.endpoint.agent)

        nixl.add(endpoint, added)

    def push(
        self, stream: "PushStream", push_id: int, slots: Sequence[Slot], offsets: Sequence[int]
    ) -> None:
        """Write slots, which the stream has leased, to offsets of its store's file.

        Raises:
            BatonError: they may not be written there.
        """
        remote = self._remotes.get(stream.agent)
        if self._nixl is None or remote is None or stream not in remote.streams:
            raise invalid_field("push", "belongs to a stream whose offer was not accepted")
        size = remote.endpoint.size_bytes
        ends = zip(offsets, slots, strict=True)
        if not all(0 <= at <= at + slot.object_bytes <= size for at, slot in ends):
            raise invalid_field("offsets_bytes", f"must lie within {size} bytes")
        if push_id <= remote.floor or push_id in remote.live:
            stream.ended(push_id)  # abandoned before it arrived
            return
        if remote.broken or len(remote.live) >= MAX_PUSHES:
            stream.ended(push_id)
            return
        remote.live[push_id] = False
        arena = self._store.arena
        pages = [(slot.offset // PAGE_BYTES, slot.generation) for slot in slots]

        def unchanged() -> bool:
            return all(arena.generations[page] == generation for page, generation in pages)

        def done(is_written: bool) -> None:
            if is_written:
                self._store.moved_bytes[GET, NIXL] += sum(slot.object_bytes for slot in slots)
            self._ended(stream.agent, remote, push_id, is_written)

        pieces = [
            (arena.file_offset(slot), at, slot.object_bytes)
            for slot, at in zip(slots, offsets, strict=True)
        ]
        message = NOTIFICATION.pack(push_id)
        self._nixl.write(NixlWriteRequest(stream.agent, pieces, unchanged, message, done))

    def abandon(self, stream: "PushStream", push_ids: Iterable[int]) -> None:
        """Notify the stream of each push when it has ended."""
        remote = self._remotes.get(stream.agent)
        for push_id in push_ids:
            if remote is not None and push_id in remote.live:
                remote.live[push_id] = True
                remote.streams[stream] = None
            else:
                stream.ended(push_id)
        if remote is not None:
            remote.floor = max(remote.floor, *push_ids)

    def closed(self, stream: "PushStream") -> None:
        """Remove a stream that ended; its pushes run to their end."""
        remote = self._remotes.get(stream.agent)
        if remote is not None:
            remote.streams.pop(stream, None)
            self._forget_if_over(stream.agent, remote)

    def _ended(self, name: str, remote: _Remote, push_id: int, is_written: bool) -> None:
        abandoned = remote.live.pop(push_id)
        if not is_written:
            remote.broken = True
        if abandoned or not is_written:
            for stream in remote.streams:
                stream.ended(push_id)
        self._forget_if_over(name, remote)

    def _forget_if_over(self, name: str, remote: _Remote) -> None:
        if not (remote.streams or remote.live) and self._remotes.get(name) is remote:
            del self._remotes[name]
            if self._nixl is not None:
                self._nixl.remove(name)


class PushStream:
    """The NIXL part of one reader's Get stream, which owns it."""

    def __init__(self, sender: NixlSender, agent: str, send: Send) -> None:
        self.agent = agent
        """The name of the reader's agent, if it has one."""
        self._sender = sender
        self._send = send

    def offer(self, frame: pb.NixlOffer) -> None:
        """Handle a NixlOffer."""
        self._sender.offer(self, frame)

    def push(self, frame: pb.Push, slots: Sequence[Slot] | None) -> None:
        """Handle a Push whose leases have these slots; None: one of them has ended.

        Raises:
            BatonError: it is invalid.
        """
        if frame.push_id <= 0 or not len(frame.lease_ids) == len(frame.offsets_bytes) > 0:
            raise invalid_field("push", "must have a number above 0 and an offset per lease")
        if slots is None:
            self.ended(frame.push_id)
        else:
            self._sender.push(self, frame.push_id, slots, frame.offsets_bytes)

    def abandon(self, frame: pb.AbandonPushes) -> None:
        """Handle an AbandonPushes.

        Raises:
            BatonError: it is invalid.
        """
        if not 0 < len(frame.push_ids) <= MAX_ABANDONED:
            raise invalid_field("push_ids", f"must be 1 to {MAX_ABANDONED}")
        self._sender.abandon(self, frame.push_ids)

    def close(self) -> None:
        """End with the Get stream."""
        self._sender.closed(self)

    def accept(self, agent: str) -> None:
        """Accept an offer: this store's agent may be sent pushes."""
        self._send(pb.GetResponse(nixl_answer=pb.NixlAnswer(agent=agent)))

    def refuse(self, reason: str) -> None:
        """Reject an offer: objects are to be fetched by gRPC."""
        status = BatonError(Reason.UNAVAILABLE, reason).to_status()
        self._send(pb.GetResponse(nixl_answer=pb.NixlAnswer(refusal=status)))

    def ended(self, push_id: int) -> None:
        """Report that a push is no longer written."""
        self._send(pb.GetResponse(push_ended=pb.PushEnded(push_id=push_id)))
