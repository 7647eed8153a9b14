"""RouterService: one Place stream per frontend."""

import itertools

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.rpc.server.call import ServerCall
from baton.settings import RouterLimits
from services.router.api.explain import Explainer
from services.router.api.limits import LimitBuckets
from services.router.api.placer import Placer
from services.router.api.session import PlaceSession
from services.router.explanation.decision_log import DecisionLog
from services.router.placement.service import PlacementService
from services.router.state.executions import Executions

SERVICE_NAME = "baton.internal.v1.RouterService"


class RouterService(RouterServiceServicer):
    """Opens a session for each Place call, and ends them all when the router stops.

    Args:
        placements: what decides.
        limits: how many answers may wait for a frontend, and for how long.
        buckets: of the limits that this router owns; None: nothing is answered of limits.
    """

    def __init__(
        self,
        placements: PlacementService,
        limits: RouterLimits = RouterLimits(),
        buckets: LimitBuckets | None = None,
    ) -> None:
        self._placements = placements
        self._limits = limits
        self._buckets = buckets
        decisions = DecisionLog()
        self._placer = Placer(placements, decisions)
        self._explainer = Explainer(placements, decisions)
        self._numbers = itertools.count(1)
        self._sessions: dict[int, PlaceSession] = {}
        self._executions = Executions()
        self._open = False
        self._stopping = False

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_RouterServiceServicer_to_server(self, server)

    def open(self) -> None:
        """Begin to serve: the cluster is known. Calls that came before were refused."""
        self._open = True

    def stop(self) -> None:
        """End every Place call with DRAINING once its answers are out, and every later one."""
        self._stopping = True
        for session in self._sessions.values():
            session.drain(_draining())

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
            raise _draining()
        number = next(self._numbers)
        session = self._sessions[number] = PlaceSession(
            number,
            self._placements,
            self._placer,
            self._executions,
            self._tell_superseded,
            self._limits,
            self._buckets,
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
        """Say why requests run where they do.

        Raises:
            BatonError: UNAVAILABLE before `open`, or INVALID_FIELD.
        """
        if not self._open:
            raise _unready()
        return self._explainer.explain(request)

    def _tell_superseded(self, session: int, execution: int) -> None:
        if session in self._sessions:
            self._sessions[session].tell_superseded(execution)


def _unready() -> BatonError:
    return BatonError(
        Reason.UNAVAILABLE, "this router does not know the cluster yet", retry_after=0.5
    )


def _draining() -> BatonError:
    return BatonError(Reason.DRAINING, "this router is stopping", retry_after=0.1)
