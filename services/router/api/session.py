"""One frontend's Place call: queries in, answers out, and the tickets that end with it."""

from baton.errors import BatonError, invalid_field
from baton.internal.v1 import router_pb2
from baton.rpc.protocol import check_hello, hello
from baton.rpc.server.call import ServerCall
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.settings import RouterLimits
from services.router import metrics
from services.router.admission.controller import TicketUsage
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.keeper import RequestHistory
from services.router.api.limits import LimitBuckets
from services.router.api.line_room_reports import LineRoomReports

_FLUSH_SECONDS = 1.0
_QUEUES_SINCE = 2
"""First version of the protocol whose frontends support queries that wait."""


class PlaceSession:
    """Answers each query when it is read, or reports that it waits and answers it later.

    Owned by the call's handler. The end of the call, for any reason, ends every ticket issued on
    it, and removes its waiting queries.

    Args:
        number: of the session, unique in this router.
        dispatcher: answers queries.
        limits: how many answers may wait for a frontend, and for how long.
        buckets: of the limits that this router owns; None: limit requests get no answer.
        history: keeps ended requests; None: they are ignored.
        line_room: tells frontends how many lines of batches they may run; None: it does not.
    """

    def __init__(
        self,
        number: int,
        dispatcher: QueryDispatcher,
        limits: RouterLimits,
        buckets: LimitBuckets | None = None,
        history: RequestHistory | None = None,
        line_room: LineRoomReports | None = None,
    ) -> None:
        self.number = number
        self._line_room = line_room
        self._dispatcher = dispatcher
        self._buckets = buckets
        self._history = history
        self._frontend = ""
        """Incarnation of the frontend, once it has sent something about limits."""
        self._greeted = False
        self._may_wait = False
        self._waiting: dict[int, int] = {}
        """Numbers of waiting queries, by correlation id."""
        self._response = router_pb2.PlaceResponse()
        """The message to send next."""
        self._spoke = True
        """Whether something was sent since the last heartbeat."""
        self._queue: SendQueue[router_pb2.PlaceResponse, router_pb2.PlaceResponse] = SendQueue()
        self._stream: ServerStream[router_pb2.PlaceRequest] = ServerStream(
            self._queue,
            self._handle,
            self._end,
            linger_seconds=_FLUSH_SECONDS,
            pause_at=limits.max_answers,
            stall_seconds=limits.stall_seconds,
        )

    async def serve(self, call: ServerCall) -> None:
        """Serve the call until the frontend ends it, or `drain`.

        Raises:
            BatonError: SLOW_CONSUMER, DRAINING or PROTOCOL_MISMATCH.
        """
        metrics.SESSIONS.inc()
        self._dispatcher.open_session(self)
        await self._stream.serve(call)

    def drain(self, error: BatonError) -> None:
        """End the call with `error` once its answers are sent, after a second at the latest."""
        self._stream.drain(error, _FLUSH_SECONDS)

    def tell_superseded(self, execution: int) -> None:
        """Notify the frontend that one of its executions was superseded."""
        self.frame().superseded.execution = execution
        self.flush()

    def frame(self) -> router_pb2.FrameFromRouter:
        """Return an empty frame of the next message."""
        return self._response.frames.add()

    def flush(self) -> None:
        """Send the frames."""
        if self._response.frames:
            response, self._response = self._response, router_pb2.PlaceResponse()
            self._queue.put(response)
            self._spoke = True

    def beat(self) -> None:
        """Send a heartbeat unless something was sent since the last one."""
        if not self._spoke:
            self.frame().heartbeat.SetInParent()
            self.flush()
        self._spoke = False

    def answered(self, correlation_id: int) -> None:
        """Record that a waiting query was answered."""
        del self._waiting[correlation_id]

    def _end(self) -> None:
        if self._line_room is not None:
            self._line_room.end(self.number)
        self._dispatcher.end_session(self.number)
        if self._buckets is not None and self._frontend:
            self._buckets.disconnected(self._frontend, self._tell_limits)
        metrics.SESSIONS.dec()

    def _handle(self, request: router_pb2.PlaceRequest) -> None:
        """Handle the frames of a message; immediate answers go into one message."""
        if not self._greeted:
            self._greeted = True
            version = check_hello(request.frames, "the frontend")
            self._may_wait = version >= _QUEUES_SINCE
            self.frame().hello.CopyFrom(hello())
        for frame in request.frames:
            kind = frame.WhichOneof("frame")
            if kind == "query":
                self._ask(frame.query)
            elif kind == "cancel_query":
                self._cancel(frame.cancel_query.correlation_id)
            elif kind == "return_tickets":
                self._return(frame.return_tickets)
            elif kind == "keep_request" and self._history is not None:
                self._history.keep(frame.keep_request)
            elif kind == "ask_line_room" and self._line_room is not None:
                self._line_room.ask(self)
            elif kind == "limit_asks" and self._buckets is not None:
                self._answer_limits(self._buckets, frame.limit_asks)
        self.flush()

    def _ask(self, query: router_pb2.PlaceQuery) -> None:
        correlation_id = query.correlation_id
        if correlation_id in self._waiting:
            raise invalid_field("query.correlation_id", f"{correlation_id} waits already")
        number = self._dispatcher.ask(self, query, may_wait=self._may_wait)
        if number:
            self._waiting[correlation_id] = number

    def _cancel(self, correlation_id: int) -> None:
        number = self._waiting.pop(correlation_id, 0)
        if number:
            self._dispatcher.cancel(number)

    def _answer_limits(
        self,
        buckets: LimitBuckets,
        asks: router_pb2.LimitAsks,
    ) -> None:
        if not asks.frontend or self._frontend not in ("", asks.frontend):
            raise invalid_field(
                "limit_asks.frontend", "must be the incarnation of the call's first message"
            )
        if not self._frontend:
            self._frontend = asks.frontend
            buckets.connected(asks.frontend, self._tell_limits)
        buckets.answer(asks, self._response)

    def _tell_limits(self, answers: router_pb2.LimitAnswers) -> None:
        self.frame().limit_answers.CopyFrom(answers)
        self.flush()

    def _return(self, returned: router_pb2.ReturnTickets) -> None:
        usage = {
            one.ticket: TicketUsage(
                max(0, one.computed_prompt_tokens),
                max(0, one.output_tokens),
                one.first_token_seconds,
            )
            for one in returned.used
        }
        self._dispatcher.return_tickets(self.number, returned.tickets, returned.finished, usage)
