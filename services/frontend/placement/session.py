"""A session with one router: one Place call, and the tickets that live on it."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2, router_pb2_grpc
from baton.internal.v1.protocol_pb2 import Hello
from baton.rpc.channel.channel import Channel
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.settings import FrontendPlacement
from baton.telemetry.logs import get_logger
from services.frontend.metrics import TICKETS
from services.frontend.placement.queries import OpenQueries, OpenQuery

_MAX_FRAMES = 64
_MAX_KEY_BYTES = 1024 * 1024
"""Frames of a message after the first, in bytes of keys or limit requests: well within the 4 MiB
that a server accepts."""
_OUTLOOK_SECONDS = 0.1
_RETURN_SECONDS = 0.005
"""Returned tickets wait this long for queries to share a message with."""

_Frame = (
    router_pb2.PlaceQuery
    | router_pb2.CancelQuery
    | router_pb2.ReturnTickets
    | router_pb2.LimitAsks
    | router_pb2.KeepRequest
    | router_pb2.AskLineRoom
    | Hello
)

log = get_logger(__name__)


class RouterUnavailableError(Exception):
    """No router is available; placement continues without one."""

    queued_seconds: float | None = None
    """Seconds that the query had waited in the router; None: it had not."""


class RouterTimeoutError(RouterUnavailableError):
    """A router is connected and did not answer in time."""


class Ticket:
    """A placement that a router tracks until it is released."""

    def __init__(self, session: "RouterSession", name: str, *, claimed: bool = False) -> None:
        self.name = name
        self._claimed = claimed
        self._session: RouterSession | None = session
        TICKETS.inc()

    def release(
        self, *, finished: bool = False, used: router_pb2.TicketUsage | None = None
    ) -> None:
        """Return it to the router. Idempotent.

        Args:
            finished: whether its request is done.
            used: the use of its work, without the ticket's name; None: not known.
        """
        session, self._session = self._session, None
        if session is not None:
            TICKETS.dec()
            if used is not None:
                used.ticket = self.name
            session.return_ticket(self.name, finished=finished and self._claimed, used=used)


class RouterSession:
    """One Place call. Owned by `RouterClient`; lives on the event loop.

    The session closes if the router takes longer than `write_seconds` for a message, or
    `answer_seconds` to answer a query or let it wait (`suspect_seconds` if there is another
    router), or if it lets queries wait and sends nothing for `silence_seconds` (if there is another
    router). The tickets that the router issued on it end with it. Queries are bounded by
    `max_pending`, tickets to return by those that were issued.
    """

    def __init__(
        self,
        instance: cluster_pb2.Instance,
        suspect: Callable[[str], None],
        has_other: Callable[[], bool],
        on_superseded: Callable[[int], None],
        on_answers: Callable[[str, router_pb2.LimitAnswers], None],
        on_line_room: Callable[[str, int], None],
        settings: FrontendPlacement,
    ) -> None:
        self.instance = instance
        self._on_line_room = on_line_room
        self._on_superseded = on_superseded
        self._on_answers = on_answers
        self._settings = settings
        self._suspect = partial(suspect, instance.id)
        self._has_other = has_other
        self._channel = Channel(instance.address)
        self._query_ids = itertools.count(1)
        self._queries = OpenQueries()
        self._watchdog: asyncio.TimerHandle | None = None
        """Watches all queries; one timer costs less than two for each."""
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

    async def wait_seconds(self, model: str) -> float:
        """Return the predicted seconds that a new request for a model would wait in the router.

        Raises:
            BatonError: the router does not answer in time.
        """
        stub = self._channel.stub(router_pb2_grpc.RouterServiceStub)
        asked = router_pb2.OutlookRequest(model=model)
        found: router_pb2.OutlookResponse = await stub.Outlook(asked, timeout=_OUTLOOK_SECONDS)
        return found.wait_seconds if found.waits else 0.0

    async def place(self, query: router_pb2.PlaceQuery) -> tuple[router_pb2.FrameFromRouter, float]:
        """Send a query, with its `correlation_id` filled in, and return the answer.

        The query of a cancelled caller is withdrawn, and a ticket that arrives for it is returned.

        Returns:
            The answer, and the seconds that the query waited in the router.

        Raises:
            RouterUnavailableError: the session closed.
            RouterTimeoutError: no answer arrived in time.
            BatonError: OVERLOADED: too many queries wait.
        """
        if self.closed:
            raise RouterUnavailableError
        if len(self._queries) >= self._settings.max_pending:
            raise BatonError(Reason.OVERLOADED, "too many queued requests", retry_after=1.0)
        number = query.correlation_id = next(self._query_ids)
        sent = self._queries.open(number)
        if self._watchdog is None:
            loop = asyncio.get_running_loop()
            self._watchdog = loop.call_later(self._settings.suspect_seconds, self._watch)
        self._call.send(query)
        response: router_pb2.FrameFromRouter | None = None
        try:
            response = await sent.answer
            return response, sent.queued_seconds
        except RouterUnavailableError as error:
            if sent.queued:
                error.queued_seconds = sent.waiting.seconds
            raise
        finally:
            self._queries.close(number)
            if response is None:
                self._take_back(number, sent)

    def send_asks(self, asks: router_pb2.LimitAsks) -> None:
        """Send limit requests; on a closed session they are lost."""
        self._call.send(asks)

    def ask_line_room(self) -> None:
        """Have the router report how many lines of batches may run."""
        self._call.send(router_pb2.AskLineRoom())

    def keep(self, ended: router_pb2.KeepRequest) -> None:
        """Have the router keep an ended request; on a closed session it is lost."""
        self._call.send(ended)

    def return_ticket(
        self, ticket: str, *, finished: bool = False, used: router_pb2.TicketUsage | None = None
    ) -> None:
        """Return a ticket. On a closed session it has ended already.

        Args:
            ticket: its name.
            finished: whether its claim is done.
            used: the use of its work; None: not known.
        """
        if not self.closed:
            self._returns.tickets.append(ticket)
            if finished:
                self._returns.finished.append(ticket)
            if used is not None:
                self._returns.used.append(used)
            if self._return_timer is None:
                loop = asyncio.get_running_loop()
                self._return_timer = loop.call_later(_RETURN_SECONDS, self._send_returns)

    def close(self, reason: str) -> None:
        """End the call; every waiting query fails. Idempotent."""
        self._call.close(BatonError(Reason.CANCELLED, reason))

    async def wait_closed(self) -> None:
        """Return when the session's tasks have ended and its channel is closed; after `close`."""
        await self._call.wait_closed()
        await self._channel.close()

    def _closed(self, error: BatonError) -> None:
        log.info("router.session.closed", peer=self.instance.id, error=error.message)
        for timer in (self._return_timer, self._watchdog):
            if timer is not None:
                timer.cancel()
        self._queries.fail_all(RouterUnavailableError)

    def _watch(self) -> None:
        """Suspect a router that owes an answer, and close the session if it is long overdue."""
        self._watchdog = None
        if not len(self._queries):
            return
        loop, settings = asyncio.get_running_loop(), self._settings
        owed, silent = self._queries.owed_seconds, self._queries.silent_seconds
        longest = max(owed, silent)
        lost_after = max(settings.answer_seconds, settings.silence_seconds)
        if owed >= settings.answer_seconds or silent >= lost_after:
            self._queries.fail_oldest(RouterTimeoutError())
            self.close("the router did not respond in time")
            return
        if owed >= settings.suspect_seconds or silent >= settings.silence_seconds:
            self._suspect()
            if self._has_other():
                self.close(f"no response for {longest:.1f} s: using another router")
                return
            left = min(
                settings.suspect_seconds, settings.answer_seconds - owed, lost_after - silent
            )
        else:
            left = min(settings.suspect_seconds - owed, settings.silence_seconds - silent)
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
        """Return the next message: queued frames that fit; tickets first, they free capacity."""
        message, keys = router_pb2.PlaceRequest(), 0
        if self._return_timer is not None:
            message.frames.add().return_tickets.CopyFrom(self._take_returns())
        while frames and len(message.frames) < _MAX_FRAMES:
            frame = frames[0]
            if isinstance(frame, Hello):
                message.frames.add().hello.CopyFrom(frame)
            elif isinstance(frame, router_pb2.ReturnTickets):
                message.frames.add().return_tickets.CopyFrom(frame)
            elif isinstance(frame, router_pb2.CancelQuery):
                message.frames.add().cancel_query.CopyFrom(frame)
            elif isinstance(frame, router_pb2.KeepRequest):
                message.frames.add().keep_request.CopyFrom(frame)
            elif isinstance(frame, router_pb2.AskLineRoom):
                message.frames.add().ask_line_room.CopyFrom(frame)
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
        self._queries.heard()
        for frame in response.frames:
            match frame.WhichOneof("frame"):
                case "placement":
                    self._answer(frame.placement.correlation_id, frame)
                case "failed":
                    self._answer(frame.failed.correlation_id, frame)
                case "queued":
                    self._queries.let_wait(frame.queued.correlation_id)
                case "superseded":
                    self._on_superseded(frame.superseded.execution)
                case "limit_answers":
                    self._on_answers(self.instance.incarnation, frame.limit_answers)
                case "line_room":
                    self._on_line_room(self.instance.incarnation, frame.line_room.lines)

    def _answer(self, number: int, frame: router_pb2.FrameFromRouter) -> None:
        query = self._queries.get(number)
        if query is not None and not query.answer.done():
            query.answer.set_result(frame)
        elif frame.placement.ticket:
            self._decline(frame)  # its caller was cancelled

    def _take_back(self, number: int, query: OpenQuery) -> None:
        """Withdraw a query whose caller no longer waits."""
        if not query.answer.done() or query.answer.cancelled():
            if not self.closed:
                self._call.send(router_pb2.CancelQuery(correlation_id=number))
        elif query.answer.exception() is None and query.answer.result().placement.ticket:
            self._decline(query.answer.result())  # it arrived at the moment of the cancellation

    def _decline(self, frame: router_pb2.FrameFromRouter) -> None:
        """Return the ticket of a placement that is not used."""
        ticket = frame.placement.ticket
        self.return_ticket(ticket, used=router_pb2.TicketUsage(ticket=ticket))
