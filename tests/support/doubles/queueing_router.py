"""A router whose queries wait, are placed or fail as the test decides."""

import asyncio
from typing import Any

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.rpc.protocol import hello
from tests.support.doubles.worker import frames_of


class QueueingRouter(RouterServiceServicer):
    """Sends nothing by itself except hello. A query's name is the id of its request."""

    def __init__(self) -> None:
        self.open: dict[str, router_pb2.PlaceQuery] = {}
        """Queries that were neither answered nor cancelled."""
        self.asked: list[router_pb2.PlaceQuery] = []
        self.taken_back: list[str] = []
        self.tickets: set[str] = set()
        """Tickets that were issued and not returned."""
        self.used: dict[str, router_pb2.TicketUsage] = {}
        self.sessions = 0
        """The sessions that started."""
        self._contexts: dict[Any, asyncio.Task[Any] | None] = {}
        self._end: BatonError | None = None
        self._names: dict[int, str] = {}

    def register(self, server: Any) -> None:
        add_RouterServiceServicer_to_server(self, server)

    async def Place(self, requests: Any, context: Any) -> None:  # noqa: N802
        self.sessions += 1
        self._contexts[context] = asyncio.current_task()
        try:
            async for frame in frames_of(requests):
                match frame.WhichOneof("frame"):
                    case "hello":
                        self._say(hello=hello())
                    case "query":
                        name = frame.query.context.request_id
                        self.asked.append(frame.query)
                        self.open[name] = frame.query
                        self._names[frame.query.correlation_id] = name
                    case "cancel_query":
                        name = self._names[frame.cancel_query.correlation_id]
                        self.taken_back.append(name)
                        self.open.pop(name, None)
                    case "return_tickets":
                        self.tickets.difference_update(frame.return_tickets.tickets)
                        self.used |= {one.ticket: one for one in frame.return_tickets.used}
        except asyncio.CancelledError:
            if self._end is None:
                raise
            raise self._end from None
        finally:
            del self._contexts[context]
            self.tickets.clear()
            self.open.clear()

    def let_wait(self, name: str) -> None:
        self._say(queued=router_pb2.Queued(correlation_id=self.open[name].correlation_id))

    def beat(self) -> None:
        self._say(heartbeat=router_pb2.Heartbeat())

    def place(self, name: str, query: router_pb2.PlaceQuery | None = None) -> None:
        """Place a query, even one that was cancelled."""
        query = query or self.open.pop(name)
        ticket = f"t-{name}"
        self.tickets.add(ticket)
        decode = router_pb2.Target(instance_id=f"for-{name}")
        number = query.correlation_id
        self._say(
            placement=router_pb2.Placement(correlation_id=number, ticket=ticket, decode=decode)
        )

    def refuse(self, name: str, error: BatonError) -> None:
        number = self.open.pop(name).correlation_id
        self._say(failed=router_pb2.PlaceFailed(correlation_id=number, status=error.to_status()))

    def end(self, error: BatonError) -> None:
        """End every call."""
        self._end = error
        for task in self._contexts.values():
            assert task is not None
            task.cancel()

    def _say(self, **frame: Any) -> None:
        said = router_pb2.PlaceResponse(frames=[router_pb2.FrameFromRouter(**frame)])
        for context in self._contexts:
            context.send(said)
