"""A session with one router: one Place call, and the tickets that live on it."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2, router_pb2_grpc
from baton.internal.v1.protocol_pb2 import Hello
from baton.rpc.channel.channel import Channel
from baton.rpc.loop_watch import Waiting
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.settings import FrontendPlacement
from baton.telemetry.logs import get_logger
from services.frontend.metrics import TICKETS

_MAX_FRAMES = 64
_MAX_KEY_BYTES = 1024 * 1024
"""Frames of a message but the first, and their keys or asks: well within the 4 MiB that a server
reads."""
_RETURN_SECONDS = 0.005
"""Returned tickets wait so long for queries to travel with."""

_Frame = router_pb2.PlaceQuery | router_pb2.ReturnTickets | router_pb2.LimitAsks | Hello

log = get_logger(__name__)


class RouterUnavailableError(Exception):
    """No router is available; placement has to do without."""


class RouterTimeoutError(RouterUnavailableError):
    """A router is connected and did not answer in time."""


class Ticket:
    """A placement that a router remembers until it is released."""

    def __init__(self, session: "RouterSession", name: str, *, claimed: bool = False) -> None:
        self.name = name
        self._claimed = claimed
        self._session: RouterSession | None = session
        TICKETS.inc()

    def release(self, *, finished: bool = False) -> None:
        """Return it to the router, and whether its request finished. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            TICKETS.dec()
            session.return_ticket(self.name, finished=finished and self._claimed)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A query that waits."""

    answer: asyncio.Future[router_pb2.FrameFromRouter]
    waiting: Waiting
    """How long it does."""


class RouterSession:
    """One Place call. Owned by `RouterClient`; lives on the event loop.

    A router that takes longer than `write_seconds` for a message, or `answer_seconds` for an
    answer (`suspect_seconds` where there is another router), closes the session; with it go the
    tickets that the router handed out on it. Queries are bounded by `max_pending`, tickets to
    return by those that were handed out.
    """

    def __init__(
        self,
        instance: cluster_pb2.Instance,
        suspect: Callable[[str], None],
        has_other: Callable[[], bool],
        on_superseded: Callable[[int], None],
        on_answers: Callable[[str, router_pb2.LimitAnswers], None],
        settings: FrontendPlacement,
    ) -> None:
        self.instance = instance
        self._on_superseded = on_superseded
        self._on_answers = on_answers
        self._settings = settings
        self._suspect = partial(suspect, instance.id)
        self._has_other = has_other
        self._channel = Channel(instance.address)
        self._query_ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        """The oldest first."""
        self._watchdog: asyncio.TimerHandle | None = None
        """Looks after the oldest of them; one timer costs less than two for each."""
        self._returns = router_pb2.ReturnTickets()
        self._return_timer: asyncio.TimerHandle | None = None
        stub = self._channel.stub(router_pb2_grpc.RouterServiceStub)
        self._call: ClientStream[_Frame, router_pb2.PlaceResponse] = ClientStream(
            stub.Place(),
            SendQueue(self._pack),
            settings.write_seconds,
        )
        self._call.send(hello())
        self._greeted = False
        self._call.start_reader(self._receive, self._closed)

    @property
    def closed(self) -> bool:
        return self._call.closed

    async def place(self, query: router_pb2.PlaceQuery) -> router_pb2.FrameFromRouter:
        """Send a query, with its `correlation_id` filled in, and return the answer.

        A ticket that comes after the caller was cancelled is returned.

        Raises:
            RouterUnavailableError: the session closed.
            RouterTimeoutError: no answer came in time.
            BatonError: OVERLOADED, too many queries wait.
        """
        if self.closed:
            raise RouterUnavailableError
        if len(self._pending) >= self._settings.max_pending:
            raise BatonError(Reason.OVERLOADED, "too many requests wait", retry_after=1.0)
        number = query.correlation_id = next(self._query_ids)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[router_pb2.FrameFromRouter] = loop.create_future()
        self._pending[number] = _Pending(answer, Waiting())
        if self._watchdog is None:
            self._watchdog = loop.call_later(self._settings.suspect_seconds, self._watch)
        self._call.send(query)
        response: router_pb2.FrameFromRouter | None = None
        try:
            response = await answer
            return response
        finally:
            del self._pending[number]
            if response is None and answer.done() and not answer.cancelled():
                self._decline(answer)

    def send_asks(self, asks: router_pb2.LimitAsks) -> None:
        """Send what is to be said of limits; on a closed session it is lost."""
        self._call.send(asks)

    def return_ticket(self, ticket: str, *, finished: bool = False) -> None:
        """Return a ticket; `finished`: its claim is done. On a closed session it is gone."""
        if not self.closed:
            self._returns.tickets.append(ticket)
            if finished:
                self._returns.finished.append(ticket)
            if self._return_timer is None:
                loop = asyncio.get_running_loop()
                self._return_timer = loop.call_later(_RETURN_SECONDS, self._send_returns)

    def close(self, reason: str) -> None:
        """End the call; every query that waits fails. Idempotent."""
        self._call.close(BatonError(Reason.CANCELLED, reason))

    async def wait_closed(self) -> None:
        """Return when the session's tasks have ended and its channel is closed; after `close`."""
        await self._call.wait_closed()
        await self._channel.close()

    def _closed(self, error: BatonError) -> None:
        log.info("router.session.closed", instance=self.instance.id, error=error.message)
        for timer in (self._return_timer, self._watchdog):
            if timer is not None:
                timer.cancel()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(RouterUnavailableError())

    def _watch(self) -> None:
        """Suspect a router that is silent, and close the session when it is so for too long."""
        self._watchdog = None
        oldest = next(iter(self._pending.values()), None)
        if oldest is None:
            return
        loop, settings = asyncio.get_running_loop(), self._settings
        waited = oldest.waiting.seconds
        if waited >= settings.answer_seconds:
            if not oldest.answer.done():
                oldest.answer.set_exception(RouterTimeoutError())
            self.close("no answer came in time")
            return
        if waited >= settings.suspect_seconds:
            self._suspect()
            if self._has_other():
                self.close(f"no answer within {settings.suspect_seconds:g} s: another one is asked")
                return
            left = min(settings.suspect_seconds, settings.answer_seconds - waited)
        else:
            left = settings.suspect_seconds - waited
        self._watchdog = loop.call_later(left, self._watch)

    def _send_returns(self) -> None:
        self._call.send(self._take_returns())

    def _take_returns(self) -> router_pb2.ReturnTickets:
        if self._return_timer is not None:
            self._return_timer.cancel()
            self._return_timer = None
        returns, self._returns = self._returns, router_pb2.ReturnTickets()
        return returns

    def _pack(self, frames: deque[_Frame]) -> router_pb2.PlaceRequest:
        """Return the next message: what fits of what is queued; tickets first, they make room."""
        message, keys = router_pb2.PlaceRequest(), 0
        if self._return_timer is not None:
            message.frames.add().return_tickets.CopyFrom(self._take_returns())
        while frames and len(message.frames) < _MAX_FRAMES:
            frame = frames[0]
            if isinstance(frame, Hello):
                message.frames.add().hello.CopyFrom(frame)
            elif isinstance(frame, router_pb2.ReturnTickets):
                message.frames.add().return_tickets.CopyFrom(frame)
            elif isinstance(frame, router_pb2.LimitAsks):
                keys += frame.ByteSize()
                if message.frames and keys > _MAX_KEY_BYTES:
                    break
                message.frames.add().limit_asks.CopyFrom(frame)
            else:
                keys += sum(len(chain.keys) for chain in frame.chains)
                if message.frames and keys > _MAX_KEY_BYTES:
                    break
                message.frames.add().query.CopyFrom(frame)
            frames.popleft()
        return message

    def _receive(self, response: router_pb2.PlaceResponse) -> None:
        if not self._greeted:
            self._greeted = True
            check_hello(response.frames, self.instance.id)
        for frame in response.frames:
            kind = frame.WhichOneof("frame")
            if kind == "superseded":
                self._on_superseded(frame.superseded.execution)
                continue
            if kind == "limit_answers":
                self._on_answers(self.instance.incarnation, frame.limit_answers)
                continue
            placed = kind == "placement"
            number = frame.placement.correlation_id if placed else frame.failed.correlation_id
            pending = self._pending.get(number)
            if pending is not None and not pending.answer.done():
                pending.answer.set_result(frame)
            elif placed and frame.placement.ticket:
                self.return_ticket(frame.placement.ticket)  # its caller was cancelled

    def _decline(self, answer: "asyncio.Future[router_pb2.FrameFromRouter]") -> None:
        """Return a ticket that came in the moment in which its caller was cancelled."""
        if answer.exception() is None and answer.result().placement.ticket:
            self.return_ticket(answer.result().placement.ticket)
