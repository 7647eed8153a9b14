"""RouterService: one Place stream per frontend."""

import itertools

import grpc

from baton.errors import BatonError, Reason
from baton.history.history import History
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.rpc.server.call import ServerCall
from baton.settings import RouterLimits
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.explain import Explainer
from services.router.api.keeper import RequestHistory
from services.router.api.limits import LimitBuckets
from services.router.api.line_room_reports import LineRoomReports
from services.router.api.session import PlaceSession

SERVICE_NAME = "baton.internal.v1.RouterService"


class RouterService(RouterServiceServicer):
    """Opens a session for each Place call, and ends them all when the router stops.

    Args:
        dispatcher: answers queries.
        limits: how many answers may wait for a frontend, and for how long.
        buckets: of the limits that this router owns; None: limit requests get no answer.
        history: where ended requests are kept; None: nowhere.
    """

    def __init__(
        self,
        dispatcher: QueryDispatcher,
        limits: RouterLimits = RouterLimits(),
        buckets: LimitBuckets | None = None,
        history: History | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._buckets = buckets
        self._explainer = Explainer(dispatcher.placements, dispatcher.decisions)
        self._history = RequestHistory(self._explainer, history)
        self._line_room = LineRoomReports(dispatcher.placements.fleet)
        self._numbers = itertools.count(1)
        self._sessions: dict[int, PlaceSession] = {}
        self._open = False
        self._stopping = False

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_RouterServiceServicer_to_server(self, server)

    def open(self) -> None:
        """Begin to serve: the cluster is known. Earlier calls were rejected."""
        self._open = True

    def begin_drain(self) -> None:
        """Reject what waits, and what would have to, with DRAINING: another router has time for it.

        What can be placed immediately still is.
        """
        self._dispatcher.drain(draining())

    def stop(self) -> None:
        """End every Place call with DRAINING once its answers are sent, and every later one."""
        self._stopping = True
        for session in self._sessions.values():
            session.drain(draining())

    async def Place(  # type: ignore[override]  # noqa: N802  # stubs know no handler that writes
        self, _: object, context: ServerCall
    ) -> None:
        """Serve one session until the frontend ends it or the router stops.

        Raises:
            BatonError: UNAVAILABLE before `open`, DRAINING after `stop`, or SLOW_CONSUMER.
        """
        if not self._open:
            raise _unready()
        if self._stopping:
            raise draining()
        number = next(self._numbers)
        session = self._sessions[number] = PlaceSession(
            number,
            self._dispatcher,
            self._limits,
            self._buckets,
            self._history,
            self._line_room,
        )
        try:
            await session.serve(context)
        finally:
            del self._sessions[number]

    async def Explain(  # noqa: N802
        self,
        request: router_pb2.ExplainRequest,
        context: object,  # noqa: ARG002
    ) -> router_pb2.ExplainResponse:
        """Explain why requests run where they do.

        Raises:
            BatonError: UNAVAILABLE before `open`, or INVALID_FIELD.
        """
        if not self._open:
            raise _unready()
        response = self._explainer.explain(request)
        if request.request_id:
            await self._history.add_to(response, request.request_id)
        return response

    async def Outlook(  # noqa: N802
        self,
        request: router_pb2.OutlookRequest,
        context: object,  # noqa: ARG002
    ) -> router_pb2.OutlookResponse:
        """Report what a new request would meet here.

        Raises:
            BatonError: UNAVAILABLE before `open`.
        """
        if not self._open:
            raise _unready()
        outlook = self._dispatcher.outlook(request.model, request.tenant)
        return router_pb2.OutlookResponse(
            waits=outlook.waits, full=outlook.full, wait_seconds=outlook.wait_seconds
        )


def _unready() -> BatonError:
    return BatonError(
        Reason.UNAVAILABLE, "this router is still loading the cluster's state", retry_after=0.5
    )


def draining() -> BatonError:
    """Return the error that a stopping router sends."""
    return BatonError(Reason.DRAINING, "this router is stopping", retry_after=0.1)
