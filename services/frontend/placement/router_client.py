"""Placements from routers: one session at a time, on another router when it closes."""

import asyncio
import random
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import NamedTuple

from baton.cluster.rendezvous import choose
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.settings import FrontendPlacement
from services.frontend.metrics import QUEUE_SECONDS
from services.frontend.placement.query_times import QueryTimes
from services.frontend.placement.session import (
    RouterSession,
    RouterTimeoutError,
    RouterUnavailableError,
    Ticket,
)

KNOWS_NOBODY = (Reason.NO_WORKER, Reason.MODEL_NOT_FOUND)
"""Rejections of a router that knows no worker for a request."""


_MAX_ATTEMPTS = 2
"""Most routers tried for one request that do not let its query wait."""
_MAX_ASKED = 8
"""Most routers tried in total: bounds routers that accept queries and are then lost."""


class PlacementReply(NamedTuple):
    """A placement of a router."""

    decision: router_pb2.Placement
    ticket: Ticket | None
    """To be released when its streams end; None: there is nothing to release."""
    router_id: str
    queued_seconds: float
    """Seconds that the query waited in routers."""


def _no_limits(_: str, __: router_pb2.LimitAnswers) -> None:
    """Ignore answers: no limits were requested."""


def _nobody(_: str) -> None:
    """Ignore a closed session."""


class RouterClient:
    """Queries routers for placements; lives on the event loop.

    Queries with a claim go to the router that its key selects, all others to one router at a time.
    When its session closes the next query goes to another router, or to the same one as soon as it
    is back. One that knows no worker, for example because it was cut off from etcd or from them, is
    not believed before another one was queried: it responds immediately, and no request waits for
    it.
    """

    def __init__(
        self,
        routers: Callable[[], Sequence[cluster_pb2.Instance]],
        suspect: Callable[[str], None],
        on_superseded: Callable[[int], None],
        settings: FrontendPlacement,
    ) -> None:
        """Choose among the live routers.

        Args:
            routers: returns the live routers.
            suspect: called with a router that failed.
            on_superseded: called with each execution that another one superseded.
            settings: deadlines of routers.
        """
        self._on_superseded = on_superseded
        self._routers = routers
        self._suspect = suspect
        self._settings = settings
        self.on_answers: Callable[[str, router_pb2.LimitAnswers], None] = _no_limits
        """Called with a router's incarnation, and its limit answers."""
        self.on_closed: Callable[[str], None] = _nobody
        """Called with the incarnation of a router whose session closed."""
        self.on_line_room: Callable[[int | None], None] | None = None
        """Called with the number of lines of batches that the current router would have, and with
        None when its session closes; None: it is not asked."""
        self._session: RouterSession | None = None
        # Replaced sessions may still hold tickets.
        self._open: dict[asyncio.Task[None], RouterSession] = {}

    async def __aenter__(self) -> "RouterClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._open.values():
            session.close("the frontend is stopping")
        if self._open:
            await asyncio.wait(self._open)

    async def place(self, query: router_pb2.PlaceQuery, times: QueryTimes) -> PlacementReply:
        """Return a placement, whose ticket is to be released when its streams end.

        A query may wait in a router for a long time. A router that is lost meanwhile is not a
        failed attempt: the next one learns how long the request has waited.

        Args:
            query: its times are set each time that it is sent.
            times: of its request.

        Raises:
            RouterUnavailableError: no router is available, or none answered.
            BatonError: the router rejected it, with its reason.
        """
        failed: set[str] = set()
        refused: BatonError | None = None
        attempts, waited = 0, 0.0
        for _ in range(_MAX_ASKED):
            if attempts == _MAX_ATTEMPTS:
                break
            attempts += 1
            if query.HasField("claim"):
                session = self._session_for(query.claim.key, failed)
            else:
                session = self._connected(failed)
            times.fill_in(query)
            try:
                response, queued_seconds = await session.place(query)
            except RouterTimeoutError:
                raise  # the client has waited long enough
            except RouterUnavailableError as error:
                self._suspect(session.instance.id)
                failed.add(session.instance.id)
                if error.queued_seconds is not None:
                    attempts -= 1
                    waited += error.queued_seconds
                continue
            waited += queued_seconds
            if response.WhichOneof("frame") == "failed":
                refused = BatonError.from_status(response.failed.status)
                failed.add(session.instance.id)
                if refused.reason is Reason.DRAINING:  # it rejects its waiting queries
                    refused, attempts = None, attempts - 1
                    continue
                if refused.reason in KNOWS_NOBODY and self._usable(failed):
                    continue
                raise refused
            placement = response.placement
            ticket = Ticket(session, placement.ticket, claimed=query.HasField("claim"))
            if waited:
                QUEUE_SECONDS.observe(waited)
            return PlacementReply(placement, ticket, session.instance.id, waited)
        raise refused or RouterUnavailableError

    async def wait_seconds(self, model: str) -> float:
        """Return the predicted seconds that a new request for a model would wait; 0: no router is
        connected.

        Raises:
            BatonError: the router does not answer in time.
        """
        session = self._session
        return 0.0 if session is None or session.closed else await session.wait_seconds(model)

    def keep(self, ended: router_pb2.KeepRequest, router_id: str) -> bool:
        """Have a router keep an ended request: the one that placed it, or else the current one.

        Args:
            ended: the request.
            router_id: the router that placed it; empty: none did.

        Returns:
            Whether there is a session with one.
        """
        placed_by = [one for one in self._open.values() if one.instance.id == router_id]
        for session in (*placed_by, self._session):
            if session is not None and not session.closed:
                session.keep(ended)
                return True
        return False

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Close the sessions with a router that left or restarted."""
        for session in list(self._open.values()):
            known = session.instance
            if known.id == instance.id and (not alive or known.incarnation != instance.incarnation):
                session.close("the router disconnected")

    def session_to(self, incarnation: str) -> RouterSession | None:
        """Return the open session with a router, or a new one; None: there is no such router."""
        for router in self._routers():
            if router.incarnation == incarnation:
                return self._session_with(router)
        return None

    def suspect(self, incarnation: str) -> None:
        """Have a router probed whose session broke, unless it has left."""
        for router in self._routers():
            if router.incarnation == incarnation:
                self._suspect(router.id)

    def _connected(self, failed: Set[str]) -> RouterSession:
        session = self._session
        if session is not None and self._takes_queries(session, failed):
            return session
        previous = {session.instance.id} if session is not None and session.closed else set()
        routers = self._usable(failed | previous) or self._usable()
        if not routers:
            raise RouterUnavailableError
        session = self._session = self._session_with(random.choice(routers))
        if self.on_line_room is not None:
            self.on_line_room(None)
            session.ask_line_room()
        return session

    def _usable(self, excluded: Set[str] = frozenset()) -> list[cluster_pb2.Instance]:
        return [one for one in self._routers() if not one.draining and one.id not in excluded]

    def _session_for(self, key: bytes, failed: Set[str]) -> RouterSession:
        """Return a session with the live router that all frontends select for a key."""
        routers = self._usable(failed)
        if not routers:
            raise RouterUnavailableError
        by_id = {one.id: one for one in routers}
        return self._session_with(by_id[choose(key, by_id)])

    def _session_with(self, router: cluster_pb2.Instance) -> RouterSession:
        """Return the open session with a router, or a new one."""
        for session in self._open.values():
            known = session.instance
            same = (known.id, known.incarnation) == (router.id, router.incarnation)
            if same and not session.closed:
                return session
        session = RouterSession(
            router,
            self._suspect,
            partial(self._has_other, router.id),
            self._on_superseded,
            self._take_answers,
            self._take_line_room,
            self._settings,
        )
        task = asyncio.create_task(session.wait_closed())
        self._open[task] = session
        task.add_done_callback(self._closed)
        return session

    def _take_answers(self, incarnation: str, answers: router_pb2.LimitAnswers) -> None:
        self.on_answers(incarnation, answers)

    def _take_line_room(self, incarnation: str, lines: int) -> None:
        session = self._session
        if self.on_line_room is None or session is None:
            return
        if session.instance.incarnation == incarnation:  # others were the current one before
            self.on_line_room(lines)

    def _closed(self, task: asyncio.Task[None]) -> None:
        closed = self._open.pop(task)
        if closed is self._session and self.on_line_room is not None:
            self.on_line_room(None)
        self.on_closed(closed.instance.incarnation)

    def _has_other(self, router_id: str) -> bool:
        return bool(self._usable({router_id}))

    def _takes_queries(self, session: RouterSession, failed: Set[str]) -> bool:
        """Return whether to keep using a session: not once its router drains.

        The session itself stays open for the tickets that live on it, until the router ends it.
        """
        router_id = session.instance.id
        draining = any(one.draining for one in self._routers() if one.id == router_id)
        return not (session.closed or draining or router_id in failed)
