"""The session with a router: where shall this request run?

One Place call at a time, to one router; tickets live on it and die with it. When it breaks the
next question goes to another router, or to the same one as soon as it is back.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import cast

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2, router_pb2_grpc
from baton.rpc.channels import open_channel
from baton.rpc.protocol import check_hello, hello
from baton.telemetry.logs import get_logger
from baton.telemetry.scope import detached_context
from services.frontend.metrics import TICKETS

MAX_PENDING = 4096
"""Questions that may wait for an answer; more are refused with OVERLOADED."""
_ANSWER_SECONDS = 2.0
_SILENCE_SECONDS = 0.5
_WRITE_SECONDS = 5.0
_MAX_FRAMES = 64
_MAX_KEY_BYTES = 1024 * 1024
"""Frames of a message but the first, and their keys: well within the 4 MiB that a server reads."""
_RETURN_SECONDS = 0.005
"""Tickets that are given back wait so long for questions to travel with."""

log = get_logger(__name__)


class RouterUnavailableError(Exception):
    """No router is available; placement has to do without."""


class RouterTimeoutError(RouterUnavailableError):
    """A router is connected and did not answer in time."""


class Ticket:
    """A placement that a router remembers until it is given back."""

    def __init__(self, session: "RouterSession", name: str) -> None:
        self.name = name
        self._session: RouterSession | None = session
        TICKETS.inc()

    def release(self) -> None:
        """Return it to the router. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            TICKETS.dec()
            session.return_ticket(self.name)


class RouterSession:
    """One Place call."""

    def __init__(self, instance: cluster_pb2.Instance, suspect: Callable[[str], None]) -> None:
        self.instance = instance
        self._suspect = partial(suspect, instance.id)
        self.broken = False
        self._channel = open_channel(instance.address)
        self._call: grpc.aio.StreamStreamCall[router_pb2.PlaceRequest, router_pb2.PlaceResponse]
        self._call = router_pb2_grpc.RouterServiceStub(self._channel).Place()  # type: ignore[call-arg]  # the stub wants an iterator
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[router_pb2.FrameFromRouter]] = {}
        self._queries: deque[router_pb2.PlaceQuery] = deque()  # bounded by _pending
        self._returns: list[str] = []  # bounded by the tickets that were handed out
        self._more = asyncio.Event()
        self._said_hello = self._greeted = False
        self._returning: asyncio.TimerHandle | None = None
        loop = asyncio.get_running_loop()
        # They outlive the request that happens to be the first, and serve all: not in its name.
        self._tasks = [
            loop.create_task(loop_task, context=detached_context())
            for loop_task in (self._read(), self._write())
        ]

    async def place(self, query: router_pb2.PlaceQuery) -> router_pb2.FrameFromRouter:
        """Ask; `query.correlation_id` is filled in. A caller that is cancelled takes it back.

        Raises:
            RouterUnavailableError: the session broke.
            RouterTimeoutError: no answer came within 2 s.
            BatonError: OVERLOADED, too many questions wait.
        """
        if self.broken:
            raise RouterUnavailableError
        if len(self._pending) >= MAX_PENDING:
            raise BatonError(Reason.OVERLOADED, "too many requests wait", retry_after=1.0)
        number = query.correlation_id = next(self._numbers)
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        silence = loop.call_later(_SILENCE_SECONDS, self._suspect)
        self._pending[number] = answer
        self._queries.append(query)
        self._more.set()
        response: router_pb2.FrameFromRouter | None = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                response = await answer
            return response
        except TimeoutError:
            self.close("no answer came in time")
            raise RouterTimeoutError from None
        finally:
            silence.cancel()
            del self._pending[number]
            if response is None and answer.done() and not answer.cancelled():
                self._decline(answer)

    def return_ticket(self, ticket: str) -> None:
        """Return a ticket. On a broken session it is gone already."""
        if not self.broken:
            self._returns.append(ticket)
            if self._returning is None:
                loop = asyncio.get_running_loop()
                self._returning = loop.call_later(_RETURN_SECONDS, self._more.set)

    def close(self, reason: str) -> None:
        """End the call; every question that waits fails."""
        if self.broken:
            return
        self.broken = True
        log.info("router.session.closed", instance=self.instance.id, reason=reason)
        self._call.cancel()
        if self._returning is not None:
            self._returning.cancel()
        for task in self._tasks:
            task.cancel()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(RouterUnavailableError())

    async def wait_closed(self) -> None:
        """Return when the session's tasks have ended and its channel is closed."""
        await asyncio.wait(self._tasks)
        await self._channel.close(None)

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._returns or self._queries:
                    async with asyncio.timeout(_WRITE_SECONDS):
                        await self._call.write(self._message())
        except (TimeoutError, grpc.RpcError, asyncio.InvalidStateError):
            self.close("the router does not read")

    def _message(self) -> router_pb2.PlaceRequest:
        """What waits, as far as one message takes it; tickets first, as they make room."""
        message = router_pb2.PlaceRequest()
        if not self._said_hello:
            self._said_hello = True
            message.frames.add().hello.CopyFrom(hello())
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        if self._returns:
            message.frames.add().return_tickets.tickets.extend(self._returns)
            self._returns.clear()
        keys = 0
        while self._queries and len(message.frames) < _MAX_FRAMES:
            keys += sum(len(chain.keys) for chain in self._queries[0].chains)
            if message.frames and keys > _MAX_KEY_BYTES:
                break
            message.frames.add().query.CopyFrom(self._queries.popleft())
        return message

    async def _read(self) -> None:
        reason = "the router ended it"
        try:
            while True:
                response = await self._call.read()
                if response is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                    break
                frames = cast(router_pb2.PlaceResponse, response).frames
                if not self._greeted:
                    self._greeted = True
                    check_hello(frames, self.instance.id)
                for frame in frames:
                    self._deliver(frame)
        except BatonError as error:
            reason = error.message
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        finally:
            self.close(reason)

    def _decline(self, answer: "asyncio.Future[router_pb2.FrameFromRouter]") -> None:
        """Give back what came in the moment in which nobody wanted it any more."""
        if answer.exception() is None and answer.result().placement.ticket:
            self.return_ticket(answer.result().placement.ticket)

    def _deliver(self, response: router_pb2.FrameFromRouter) -> None:
        placed = response.WhichOneof("frame") == "placement"
        number = response.placement.correlation_id if placed else response.failed.correlation_id
        answer = self._pending.get(number)
        if answer is not None and not answer.done():
            answer.set_result(response)
        elif placed and response.placement.ticket:
            self.return_ticket(response.placement.ticket)  # whoever asked went away


class RouterClient:
    """Asks routers, one session at a time."""

    def __init__(
        self,
        routers: Callable[[], Sequence[cluster_pb2.Instance]],
        suspect: Callable[[str], None],
    ) -> None:
        """Choose among what `routers` answers, those alive now; tell `suspect` who failed."""
        self._routers = routers
        self._suspect = suspect
        self._session: RouterSession | None = None
        # Those that were left may still hold tickets.
        self._open: dict[asyncio.Task[None], RouterSession] = {}

    async def __aenter__(self) -> "RouterClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._open.values():
            session.close("the frontend stops")
        if self._open:
            await asyncio.wait(self._open)

    async def place(self, query: router_pb2.PlaceQuery) -> tuple[router_pb2.Placement, Ticket, str]:
        """Ask for a placement: it, its ticket (release it when the streams end), and who answered.

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
        """Take note of a member: sessions with it end if it is gone or has started anew."""
        for session in list(self._open.values()):
            known = session.instance
            if known.id == instance.id and (not alive or known.incarnation != instance.incarnation):
                session.close("the router is gone")

    def _connected(self) -> RouterSession:
        session = self._session
        if session is not None and not session.broken and not self._left(session):
            return session
        routers = [router for router in self._routers() if not router.draining]
        if not routers:
            raise RouterUnavailableError
        previous = session.instance.id if session is not None and session.broken else ""
        others = [router for router in routers if router.id != previous]
        session = self._session = RouterSession(random.choice(others or routers), self._suspect)
        task = asyncio.create_task(session.wait_closed())
        self._open[task] = session
        task.add_done_callback(self._open.pop)
        return session

    def _left(self, session: RouterSession) -> bool:
        """Whether a session's router drains: then another one is asked.

        The session itself stays open for the tickets that live on it, until the router ends it.
        """
        drains = (one.draining for one in self._routers() if one.id == session.instance.id)
        return any(drains)
