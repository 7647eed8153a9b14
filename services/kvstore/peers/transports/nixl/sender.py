"""What this store writes into other stores' arenas by NIXL, because they asked for it.

A push ends when NIXL says that its transfer is over, and never before: until then the asking store
keeps the places that are written to. It asks again after pushes that it gave up, on whatever stream
it has then, and is told as soon as they are over.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import PAGE_BYTES
from baton.telemetry.logs import get_logger
from baton.transports import NIXL
from services.kvstore.memory.slot import Slot
from services.kvstore.peers.transports.nixl.agent import Endpoint, NixlError, agent_name
from services.kvstore.peers.transports.nixl.thread import NixlThread, Write
from services.kvstore.sessions import Session
from services.kvstore.store import GET, Store

log = get_logger(__name__)

MAX_PUSHES = 256
"""Under way to one store; more are refused."""
MAX_ABANDONED = 4096
"""In one AbandonPushes."""
MESSAGE = struct.Struct("<q")
"""What the notification of a push says: its number."""

Send = Callable[[pb.GetResponse], object]


@dataclass(eq=False, slots=True)
class _Remote:
    """A store that offered its memory."""

    endpoint: Endpoint
    readers: dict["PushStream", None] = field(default_factory=dict)
    """Its streams."""
    live: dict[int, bool] = field(default_factory=dict)
    """Pushes that are not over, with whether they were abandoned."""
    floor: int = 0
    """Pushes up to here were abandoned: one that arrives late, from an older stream, is refused."""
    broken: bool = False
    """A write failed: it must be met anew."""


class NixlSender:
    """See the module's text. One per store.

    Args:
        store: whose objects are written.
        nixl: the thread that writes; None: offers are refused.
    """

    def __init__(self, store: Store, nixl: NixlThread | None) -> None:
        self._store = store
        self._nixl = nixl
        self._remotes: dict[str, _Remote] = {}

    @property
    def live(self) -> int:
        """Pushes that are not over."""
        return sum(len(remote.live) for remote in self._remotes.values())

    def stream(self, session: Session, send: Send) -> "PushStream":
        """The pushes of one stream; `send` puts frames on it."""
        return PushStream(self, agent_name(session.client_id, session.incarnation), send)

    def offered(self, reader: "PushStream", offer: pb.NixlOffer) -> None:
        """Meet a store, and answer."""
        if self._nixl is None:
            reader.refuse("this store does not use NIXL")
            return
        name = reader.agent
        try:
            endpoint = Endpoint.checked(offer.endpoint, name)
        except NixlError as error:
            reader.refuse(str(error))
            return
        remote = self._remotes.get(name)
        if remote is None:
            remote = self._remotes[name] = _Remote(endpoint)
        elif remote.broken or remote.endpoint != endpoint:
            if remote.live:
                reader.refuse("pushes are under way")
                return
            self._nixl.remove(name)
            remote.endpoint, remote.broken = endpoint, False
        remote.readers[reader] = None
        nixl = self._nixl
        nixl.start()

        def met(failure: str) -> None:
            if failure:
                remote.broken = True
                log.info("a store cannot be reached by NIXL", agent=name, error=failure)
                reader.refuse(failure)
            elif nixl.endpoint is not None:
                reader.accept(nixl.endpoint.agent)

        nixl.add(endpoint, met)

    def push(
        self, reader: "PushStream", push_id: int, slots: Sequence[Slot], offsets: Sequence[int]
    ) -> None:
        """Write slots, which the stream has leased, to offsets of its store's file.

        Raises:
            BatonError: it may not be written there.
        """
        remote = self._remotes.get(reader.agent)
        if self._nixl is None or remote is None or reader not in remote.readers:
            raise BatonError(Reason.INVALID_FIELD, "NIXL was not accepted", field="push")
        size = remote.endpoint.size_bytes
        ends = zip(offsets, slots, strict=True)
        if not all(0 <= at <= at + slot.object_bytes <= size for at, slot in ends):
            raise BatonError(
                Reason.INVALID_FIELD, f"offsets lie within {size} bytes", field="offsets_bytes"
            )
        if push_id <= remote.floor or push_id in remote.live:
            reader.ended(push_id)  # abandoned before it came
            return
        if remote.broken or len(remote.live) >= MAX_PUSHES:
            reader.ended(push_id)
            return
        remote.live[push_id] = False
        arena = self._store.arena
        pages = [(slot.offset // PAGE_BYTES, slot.generation) for slot in slots]

        def still_right() -> bool:
            return all(arena.generations[page] == generation for page, generation in pages)

        def over(done: bool) -> None:
            if done:
                self._store.moved_bytes[GET, NIXL] += sum(slot.object_bytes for slot in slots)
            self._over(reader.agent, remote, push_id, done)

        pieces = [
            (arena.file_offset(slot), at, slot.object_bytes)
            for slot, at in zip(slots, offsets, strict=True)
        ]
        message = MESSAGE.pack(push_id)
        self._nixl.write(Write(reader.agent, pieces, still_right, message, over))

    def abandon(self, reader: "PushStream", push_ids: Iterable[int]) -> None:
        """Say of each push when it is over."""
        remote = self._remotes.get(reader.agent)
        for push_id in push_ids:
            if remote is not None and push_id in remote.live:
                remote.live[push_id] = True
                remote.readers[reader] = None
            else:
                reader.ended(push_id)
        if remote is not None:
            remote.floor = max(remote.floor, *push_ids)

    def closed(self, reader: "PushStream") -> None:
        """The stream ended; what it asked for goes on to its end."""
        remote = self._remotes.get(reader.agent)
        if remote is not None:
            remote.readers.pop(reader, None)
            self._forget_if_over(reader.agent, remote)

    def _over(self, name: str, remote: _Remote, push_id: int, done: bool) -> None:
        abandoned = remote.live.pop(push_id)
        if not done:
            remote.broken = True
        if abandoned or not done:
            for reader in remote.readers:
                reader.ended(push_id)
        self._forget_if_over(name, remote)

    def _forget_if_over(self, name: str, remote: _Remote) -> None:
        if not (remote.readers or remote.live) and self._remotes.get(name) is remote:
            del self._remotes[name]
            if self._nixl is not None:
                self._nixl.remove(name)


class PushStream:
    """The part of a reader's stream that is about NIXL."""

    def __init__(self, pushes: NixlSender, agent: str, send: Send) -> None:
        self.agent = agent
        """What the reader's agent is called, if it has one."""
        self._pushes = pushes
        self._send = send

    def offer(self, frame: pb.NixlOffer) -> None:
        self._pushes.offered(self, frame)

    def push(self, frame: pb.Push, slots: Sequence[Slot] | None) -> None:
        """Take a Push whose leases are of these slots; None: one of them has ended.

        Raises:
            BatonError: it makes no sense.
        """
        if frame.push_id <= 0 or not len(frame.lease_ids) == len(frame.offsets_bytes) > 0:
            raise BatonError(
                Reason.INVALID_FIELD, "a push has a number and an offset per lease", field="push"
            )
        if slots is None:
            self.ended(frame.push_id)
        else:
            self._pushes.push(self, frame.push_id, slots, frame.offsets_bytes)

    def abandon(self, frame: pb.AbandonPushes) -> None:
        """Take an AbandonPushes.

        Raises:
            BatonError: it makes no sense.
        """
        if not 0 < len(frame.push_ids) <= MAX_ABANDONED:
            raise BatonError(Reason.INVALID_FIELD, f"1 to {MAX_ABANDONED} pushes", field="push_ids")
        self._pushes.abandon(self, frame.push_ids)

    def close(self) -> None:
        self._pushes.closed(self)

    def accept(self, agent: str) -> None:
        self._send(pb.GetResponse(nixl_answer=pb.NixlAnswer(agent=agent)))

    def refuse(self, why: str) -> None:
        status = BatonError(Reason.UNAVAILABLE, why).to_status()
        self._send(pb.GetResponse(nixl_answer=pb.NixlAnswer(refusal=status)))

    def ended(self, push_id: int) -> None:
        self._send(pb.GetResponse(push_ended=pb.PushEnded(push_id=push_id)))
