"""Placements from routers: one session at a time, another router when it closes."""

import asyncio
import random
from collections.abc import Callable, Sequence

from baton.errors import BatonError
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.settings import FrontendPlacement
from services.frontend.placement.session import (
    RouterSession,
    RouterTimeoutError,
    RouterUnavailableError,
    Ticket,
)


class RouterClient:
    """Asks routers for placements, one at a time; lives on the event loop.

    When its session closes the next query goes to another router, or to the same one as soon as it
    is back.
    """

    def __init__(
        self,
        routers: Callable[[], Sequence[cluster_pb2.Instance]],
        suspect: Callable[[str], None],
        settings: FrontendPlacement,
    ) -> None:
        """Choose among what `routers` returns, those alive now; tell `suspect` which one failed."""
        self._routers = routers
        self._suspect = suspect
        self._settings = settings
        self._session: RouterSession | None = None
        # Those that were replaced may still hold tickets.
        self._open: dict[asyncio.Task[None], RouterSession] = {}

    async def __aenter__(self) -> "RouterClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._open.values():
            session.close("the frontend stops")
        if self._open:
            await asyncio.wait(self._open)

    async def place(self, query: router_pb2.PlaceQuery) -> tuple[router_pb2.Placement, Ticket, str]:
        """Return a placement, its ticket to release when the streams end, and the router's id.

        Raises:
            RouterUnavailableError: no router is there, or none answered.
            BatonError: the router refused; the reason is its own.
        """
        for _ in range(2):
            session = self._connected()
            try:
                response = await session.place(query)
            except RouterTimeoutError:
                raise  # the client has waited for long enough
            except RouterUnavailableError:
                self._suspect(session.instance.id)
                continue
            if response.WhichOneof("frame") == "failed":
                raise BatonError.from_status(response.failed.status)
            placement = response.placement
            return placement, Ticket(session, placement.ticket), session.instance.id
        raise RouterUnavailableError

    def follow(self, instance: cluster_pb2.Instance, *, alive: bool) -> None:
        """Close the sessions with a member that is gone or has started anew."""
        for session in list(self._open.values()):
            known = session.instance
            if known.id == instance.id and (not alive or known.incarnation != instance.incarnation):
                session.close("the router is gone")

    def _connected(self) -> RouterSession:
        session = self._session
        if session is not None and not session.closed and not self._draining(session):
            return session
        routers = [router for router in self._routers() if not router.draining]
        if not routers:
            raise RouterUnavailableError
        previous = session.instance.id if session is not None and session.closed else ""
        others = [router for router in routers if router.id != previous]
        router = random.choice(others or routers)
        session = self._session = RouterSession(router, self._suspect, self._settings)
        task = asyncio.create_task(session.wait_closed())
        self._open[task] = session
        task.add_done_callback(self._open.pop)
        return session

    def _draining(self, session: RouterSession) -> bool:
        """Return whether a session's router drains: then another one is asked.

        The session itself stays open for the tickets that live on it, until the router ends it.
        """
        return any(one.draining for one in self._routers() if one.id == session.instance.id)
