"""Sessions for asyncio."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

import grpc

from baton.client.call import traceparent
from baton.client.errors import (
    BatonClientError,
    ConnectionFailedError,
    ProtocolError,
    StreamClosedError,
    api_error,
    client_error,
)
from baton.client.plain import AsyncCall, Read
from baton.client.session.requests import IDLE_SECONDS, MAX_UNREAD, SessionRequests
from baton.client.state import InferenceRequest
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event, Finished

OpenPlain = Callable[[InferenceRequest, float], AsyncCall]


class AsyncSession:
    """One Session call with a reading and a writing task. Belongs to the client's event loop."""

    def __init__(
        self, stub: Any, on_closed: Callable[["AsyncSession", bool], None], most: int | None
    ) -> None:
        """Open the session.

        Args:
            stub: a generated stub of InferenceService.
            on_closed: called at its end, with whether the frontend supports no sessions.
            most: maximum number of requests in its life; None: any number.
        """
        self._loop = asyncio.get_running_loop()
        self._requests = SessionRequests(most)
        self._on_closed = on_closed
        self._wakeup = asyncio.Event()
        self._retired = False
        self._idle: asyncio.TimerHandle | None = None
        # It serves all requests, and belongs to no request's context.
        self._call = Context().run(stub.Session)
        self._tasks = [
            self._loop.create_task(run, context=Context()) for run in (self._read(), self._write())
        ]

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._requests)

    @property
    def takes_more(self) -> bool:
        """Whether another request may begin on it."""
        return not self._retired and not self._requests.full

    def start(self, request: InferenceRequest, timeout: float, call: "AsyncSessionCall") -> int:
        """Begin a request whose events are delivered to `call`."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._wakeup.set()
        request_id = self._requests.start(request, timeout, call, traceparent())
        self._retired = self._retired or self._requests.used_up
        return request_id

    def cancel(self, request_id: int) -> None:
        """Tell the frontend that a request is cancelled."""
        if self._requests.cancel(request_id):
            self._wakeup.set()

    def retire(self) -> None:
        """Begin no more requests on this session."""
        self._retired = True
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._close_when_idle()

    def close(self, error: BatonClientError) -> None:
        """Close the session; its requests fail with `error`."""
        self._retired = True
        for task in self._tasks:
            task.cancel()
        self._call.cancel()
        for call in self._requests.close():
            call.end(error)

    async def _write(self) -> None:
        try:
            while not (self._retired and not self._requests):
                await self._wakeup.wait()
                self._wakeup.clear()
                while (message := self._requests.to_send()) is not None:
                    await self._call.write(message)
            await self._call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            """The reader is told why."""

    async def _read(self) -> None:
        error: BatonClientError = ConnectionFailedError("the frontend ended the session", "")
        failure: grpc.RpcError | None = None
        end = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
        try:
            while (response := await self._call.read()) is not end:
                self._requests.receive(response)
                if response.retired:
                    self.retire()
                if not self._requests:
                    self._close_when_idle()
        except grpc.RpcError as raised:
            failure = raised
        except ProtocolError as raised:
            error = raised
        finally:
            self._ended(error, failure)

    def _ended(self, error: BatonClientError, failure: grpc.RpcError | None) -> None:
        self._retired = True
        self._wakeup.set()
        unsupported = failure is not None and failure.code() is grpc.StatusCode.UNIMPLEMENTED
        self._on_closed(self, unsupported)
        for call in self._requests.close():
            if unsupported:
                call.fall_back()
            else:
                call.end(error if failure is None else client_error(failure, call.request_id))

    def _close_when_idle(self) -> None:
        """Close the session, immediately or after a while, when no request is open."""
        if not self._requests and self._idle is None:
            seconds = 0.0 if self._retired else IDLE_SECONDS
            self._idle = self._loop.call_later(seconds, self._close_idle)

    def _close_idle(self) -> None:
        self._idle = None
        if not self._requests:
            self._retired = True
            self._wakeup.set()


class AsyncSessionCall:
    """One request on a session: keeps its events until they are read."""

    def __init__(
        self,
        session: AsyncSession,
        request: InferenceRequest,
        timeout: float,
        open_plain: OpenPlain,
    ) -> None:
        """Begin the request; `open_plain` begins it again if the session does not accept it."""
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._request = request
        self._open_plain = open_plain
        self._plain: AsyncCall | None = None
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: BatonClientError | None = None
        self._started = self._over = False
        self._timer = self._loop.call_later(timeout, self._too_late)
        self._id = session.start(request, timeout, self)

    @property
    def request_id(self) -> str:
        return self._request.context.request_id

    async def read(self) -> Read:
        """Return the next event, as of `AsyncCall`."""
        events = self._events
        while not events:
            if self._plain is not None:
                return await self._plain.read()
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        return events.popleft()

    def cancel(self) -> None:
        """Cancel the request; a reader gets StreamClosedError."""
        if self._plain is not None:
            self._plain.cancel()
        else:
            self._abandon(StreamClosedError("the stream is closed"))

    # Called by the session.

    def push(self, delta: Delta) -> None:
        """Add output. The hot path."""
        self._events.append(delta)
        if self._waiter is not None:
            self._wake()
        elif len(self._events) > MAX_UNREAD:
            self._abandon(self._unread())

    def take(self, event: Event) -> None:
        """Add an event of any kind."""
        self._started = True
        if type(event) is Finished:
            self._finish()
        self._events.append(event)
        if self._waiter is not None:
            self._wake()
        elif len(self._events) > MAX_UNREAD and not self._over:
            self._abandon(self._unread())

    def fail(self, error: BatonError) -> None:
        """Fail with the frontend's error."""
        if error.reason is Reason.NO_CAPACITY and not self._started:
            self.fall_back()  # usually the session itself has no capacity
            return
        if error.reason is Reason.DRAINING:
            self._session.retire()
        self.end(self._error_of(error))

    def end(self, error: BatonClientError) -> None:
        """Fail after the earlier events were read."""
        if not self._over:
            self._finish()
            self._error = error
            self._wake()

    def fall_back(self) -> None:
        """Begin the request again as a separate call; nothing was received."""
        if not self._over:
            left = self._timer.when() - self._loop.time()
            self._finish()
            self._plain = self._open_plain(self._request, max(0.0, left))
            self._wake()

    def _too_late(self) -> None:
        late = BatonError(
            Reason.DEADLINE, "the response was not complete before the call's deadline"
        )
        self._abandon(self._error_of(late))

    def _abandon(self, error: BatonClientError) -> None:
        self._session.cancel(self._id)
        self.end(error)

    def _unread(self) -> BatonClientError:
        unread = f"the stream was not read: {MAX_UNREAD} events are pending"
        return self._error_of(BatonError(Reason.SLOW_CONSUMER, unread))

    def _error_of(self, error: BatonError) -> BatonClientError:
        return api_error(error, self.request_id)

    def _finish(self) -> None:
        self._over = True
        self._timer.cancel()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
