"""A session of a router's dispatcher that keeps the frames that it receives."""

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from services.router.api.dispatcher import QueryDispatcher


class Asker:
    """Sends queries, and has the frames received for each correlation id.

    Args:
        dispatcher: receives the queries.
        number: the session's number.
    """

    def __init__(self, dispatcher: QueryDispatcher, number: int = 1) -> None:
        self.number = number
        self.sent: list[router_pb2.FrameFromRouter] = []
        """The frames, in order."""
        self.superseded: list[int] = []
        self.beats = 0
        self.waiting: dict[int, int] = {}
        """Numbers of waiting queries, by correlation id."""
        self._made: list[router_pb2.FrameFromRouter] = []
        self._dispatcher = dispatcher
        dispatcher.open_session(self)

    def ask(self, query: router_pb2.PlaceQuery, *, may_wait: bool = True) -> None:
        number = self._dispatcher.ask(self, query, may_wait=may_wait)
        if number:
            self.waiting[query.correlation_id] = number
        self.flush()

    def place(self, query: router_pb2.PlaceQuery) -> router_pb2.Placement:
        """Return a placement that does not wait.

        Raises:
            BatonError: the router rejects the query.
        """
        self.ask(query, may_wait=False)
        answer = self.sent.pop()
        if answer.HasField("failed"):
            raise BatonError.from_status(answer.failed.status)
        return answer.placement

    def frame(self) -> router_pb2.FrameFromRouter:
        self._made.append(router_pb2.FrameFromRouter())
        return self._made[-1]

    def flush(self) -> None:
        self.sent += self._made
        self._made = []

    def beat(self) -> None:
        self.beats += 1

    def answered(self, correlation_id: int) -> None:
        del self.waiting[correlation_id]

    def tell_superseded(self, execution: int) -> None:
        self.superseded.append(execution)
