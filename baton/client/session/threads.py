"""Sessions for threads."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
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
from baton.client.plain import BlockingCall, Read
from baton.client.session.requests import IDLE_SECONDS, MAX_UNREAD, SessionRequests
from baton.client.state import InferenceRequest
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event
from baton.v1 import inference_pb2

OpenPlain = Callable[[InferenceRequest, float], BlockingCall]


class BlockingSession:
    """One Session call: a thread reads it, gRPC's own writes it. Any thread may use it."""

    def __init__(
        self, stub: Any, on_closed: Callable[["BlockingSession", bool], None], most: int | None
    ) -> None:
        """Open the session; the arguments are those of `AsyncSession`."""
        self._lock = threading.RLock()
        """Protects all fields below; held while a message is delivered."""
        self._requests = SessionRequests(most)
        self._retired = False
        self._on_closed = on_closed
        self._wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._call = stub.Session(self._to_send())
        threading.Thread(target=self._read, name="baton-session", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._requests)

    @property
    def takes_more(self) -> bool:
        """Whether another request may begin on it."""
        return not self._retired and not self._requests.full

    def start(
        self, request: InferenceRequest, timeout: float, call: "BlockingSessionCall"
    ) -> int | None:
        """Begin a request whose events are delivered to `call`. None: the session accepts none."""
        with self._lock:
            if self._retired or self._requests.full:
                return None
            request_id = self._requests.start(request, timeout, call, traceparent())
            self._retired = self._requests.used_up
        self._wakeup.put(None)
        return request_id

    def cancel(self, request_id: int) -> None:
        """Tell the frontend that a request is cancelled."""
        with self._lock:
            wanted = self._requests.cancel(request_id)
        if wanted:
            self._wakeup.put(None)

    def retire(self) -> None:
        """Begin no more requests on this session, and close it after the last one."""
        with self._lock:
            self._retired = True
        self._wakeup.put(None)

    def close(self, error: BatonClientError) -> None:
        """Close the session; its requests fail with `error`."""
        with self._lock:
            self._retired = True
            for call in self._requests.close():
                call.end(error)
        self._wakeup.put(None)
        self._call.cancel()

    def _to_send(self) -> Iterator[inference_pb2.SessionRequest]:
        while True:
            try:
                self._wakeup.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self._retired = self._retired or not self._requests
            while True:
                with self._lock:
                    message = self._requests.to_send()
                    over = self._retired and not self._requests
                if message is None:
                    break
                yield message
            if over:
                return

    def _read(self) -> None:
        error: BatonClientError = ConnectionFailedError("the frontend ended the session", "")
        failure: grpc.RpcError | None = None
        try:
            for response in self._call:
                with self._lock:
                    self._requests.receive(response)
                    self._retired = self._retired or response.retired
                    over = self._retired and not self._requests
                if over:
                    self._wakeup.put(None)
        except grpc.RpcError as raised:
            failure = raised
        except ProtocolError as raised:
            error = raised
            self._call.cancel()
        finally:
            self._ended(error, failure)

    def _ended(self, error: BatonClientError, failure: Any) -> None:
        unsupported = failure is not None and failure.code() is grpc.StatusCode.UNIMPLEMENTED
        self._on_closed(self, unsupported)
        with self._lock:
            self._retired = True
            for call in self._requests.close():
                if unsupported:
                    call.fall_back()
                else:
                    call.end(error if failure is None else client_error(failure, call.request_id))
        self._wakeup.put(None)


class BlockingSessionCall:
    """One request on a session: keeps its events until one thread reads them."""

    def __init__(
        self,
        session: BlockingSession,
        request: InferenceRequest,
        timeout: float,
        open_plain: OpenPlain,
    ) -> None:
        """Begin the request; `open_plain` begins it again if the session does not accept it."""
        self._session = session
        self._request = request
        self._open_plain = open_plain
        self._plain: BlockingCall | None = None
        self._events: queue.SimpleQueue[Event | BatonClientError | None] = queue.SimpleQueue()
        """Incoming events; the last is an error, or None: begin again without the session."""
        self._started = self._cancelled = False
        self._deadline = time.monotonic() + timeout
        self._id = session.start(request, timeout, self)
        if self._id is None:
            self.fall_back()

    @property
    def request_id(self) -> str:
        return self._request.context.request_id

    def read(self) -> Read:
        """Return the next event, as of `BlockingCall`."""
        if self._plain is not None:
            return self._plain.read()
        try:
            event = self._events.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            self._abandon()
            late = BatonError(
                Reason.DEADLINE, "the response was not complete before the call's deadline"
            )
            raise self._error_of(late) from None
        if isinstance(event, BatonClientError):
            raise event
        if event is None:
            left = max(0.0, self._deadline - time.monotonic())
            self._plain = self._open_plain(self._request, left)
            if self._cancelled:
                self._plain.cancel()
            return self._plain.read()
        return event

    def cancel(self) -> None:
        """Cancel the request, from any thread; a reader gets StreamClosedError."""
        self._cancelled = True
        if self._plain is not None:
            self._plain.cancel()
        else:
            self._abandon()
            self._events.put(StreamClosedError("the stream is closed"))

    # Called by the session, on its thread.

    def push(self, delta: Delta) -> None:
        """Add output. The hot path."""
        self._events.put(delta)
        if self._events.qsize() > MAX_UNREAD:
            self._abandon()
            unread = f"the stream was not read: {MAX_UNREAD} events are pending"
            self._events.put(self._error_of(BatonError(Reason.SLOW_CONSUMER, unread)))

    def take(self, event: Event) -> None:
        """Add an event of any kind."""
        self._started = True
        if type(event) is Delta:
            self.push(event)
        else:
            self._events.put(event)

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
        self._events.put(error)

    def fall_back(self) -> None:
        """Begin the request again as a separate call; nothing was received."""
        self._events.put(None)

    def _abandon(self) -> None:
        if self._id is not None:
            self._session.cancel(self._id)

    def _error_of(self, error: BatonError) -> BatonClientError:
        return api_error(error, self.request_id)
