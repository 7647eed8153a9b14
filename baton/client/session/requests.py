"""Requests that are open on one session: outgoing messages, and the receivers of incoming ones.

Pure: no I/O, no clock. Sessions of asyncio and of threads drive the same object.
"""

from typing import Protocol, TypeGuard

from baton.client.errors import BatonClientError, ProtocolError
from baton.client.state import InferenceRequest, Request
from baton.errors import BatonError
from baton.request.stream_events import Delta, Event, Finished, event_from_proto
from baton.v1 import conversations_pb2, inference_pb2

MAX_REQUEST_BYTES = 64 * 1024
"""A longer request uses a separate call: it would delay others, and may exceed the limit."""
MAX_UNREAD = 16_384
"""Maximum unread events of a stream; a stream with more is cut."""
IDLE_SECONDS = 10.0
"""Seconds after which a session without open requests is closed."""
_MESSAGE_BYTES = 256 * 1024
_ASSUMED_ROOM = 256
"""Assumed limit of open requests until the frontend reports its own: the default."""


def fits_session(request: Request) -> TypeGuard[InferenceRequest]:
    """Return whether a session can carry a request."""
    own = isinstance(request, conversations_pb2.SendMessageRequest)
    return not own and request.ByteSize() <= MAX_REQUEST_BYTES


class Receiver(Protocol):
    """Receives the events of one request on a session."""

    @property
    def request_id(self) -> str:
        """Names the request in the cluster's logs and traces."""
        ...

    def push(self, delta: Delta) -> None:
        """Receive the next output."""
        ...

    def take(self, event: Event) -> None:
        """Receive the next event of any kind."""
        ...

    def fail(self, error: BatonError) -> None:
        """Receive the failure of a request at the frontend."""
        ...

    def end(self, error: BatonClientError) -> None:
        """Receive the end of the session itself."""
        ...

    def fall_back(self) -> None:
        """Begin again without a session: the frontend supports none, and nothing was received."""
        ...


class SessionRequests:
    """Open requests by id. A cancelled one occupies capacity until the frontend has ended it."""

    def __init__(self, most: int | None = None) -> None:
        """Create the table; `most` is the number of requests in its life. None: any number."""
        self._most = most
        self._begun = 0
        self._receivers: dict[int, Receiver | None] = {}
        """Receivers by request id; None: the client has cancelled the request."""
        self._last_id = 0
        self._room = _ASSUMED_ROOM
        self._starts: list[inference_pb2.SessionStart] = []
        self._cancels: list[int] = []

    def __len__(self) -> int:
        return len(self._receivers)

    @property
    def full(self) -> bool:
        """Whether no more requests may begin now."""
        return len(self._receivers) >= self._room

    @property
    def used_up(self) -> bool:
        """Whether no more requests may ever begin."""
        return self._most is not None and self._begun >= self._most

    def start(
        self, request: InferenceRequest, timeout: float, receiver: Receiver, traceparent: str = ""
    ) -> int:
        """Begin a request and return its id.

        Args:
            request: the request.
            timeout: seconds that it may take.
            receiver: receives its events.
            traceparent: the W3C trace context of the request; empty: none.
        """
        self._last_id = request_id = self._last_id % 0xFFFFFFFF + 1
        while request_id in self._receivers:
            self._last_id = request_id = self._last_id % 0xFFFFFFFF + 1
        start = inference_pb2.SessionStart(
            id=request_id, timeout_seconds=timeout, traceparent=traceparent
        )
        if isinstance(request, inference_pb2.ChatRequest):
            start.chat.CopyFrom(request)
        else:
            start.generate.CopyFrom(request)
        self._starts.append(start)
        self._begun += 1
        self._receivers[request_id] = receiver
        return request_id

    def cancel(self, request_id: int) -> bool:
        """Cancel a request; return whether the frontend must be notified."""
        if self._receivers.get(request_id) is None:
            return False
        self._receivers[request_id] = None
        self._cancels.append(request_id)
        return True

    def to_send(self) -> inference_pb2.SessionRequest | None:
        """Return the next message to send; None: there is none."""
        if not self._starts and not self._cancels:
            return None
        size = count = 0
        for start in self._starts:
            size += start.ByteSize()
            if size > _MESSAGE_BYTES and count:
                break
            count += 1
        starts, self._starts = self._starts[:count], self._starts[count:]
        cancels: list[int] = []
        if not self._starts:  # a request is cancelled only after it has begun
            cancels, self._cancels = self._cancels, []
        return inference_pb2.SessionRequest(starts=starts, cancels=cancels)

    def receive(self, response: inference_pb2.SessionResponse) -> None:
        """Deliver a message's events to their requests.

        Raises:
            ProtocolError: the columns are inconsistent.
        """
        columns, receivers = response.deltas, self._receivers
        if columns.ids:
            if columns.choices or columns.token_counts:
                self._receive_columns(columns)
            else:
                try:
                    for request_id, position, token, text in zip(
                        columns.ids,
                        columns.positions,
                        columns.token_ids,
                        columns.texts,
                        strict=True,
                    ):
                        receiver = receivers.get(request_id)
                        if receiver is not None:
                            receiver.push(Delta(0, position, (token,), text, ()))
                except ValueError as error:
                    raise ProtocolError("columns of deltas have different lengths") from error
        for event in response.events:
            self._receive_event(event)
        if response.HasField("limits"):
            self._room = response.limits.max_requests

    def close(self) -> list[Receiver]:
        """Remove all requests; return those that are not cancelled."""
        receivers, self._receivers = self._receivers, {}
        self._starts, self._cancels = [], []
        return [receiver for receiver in receivers.values() if receiver is not None]

    def _receive_columns(self, columns: inference_pb2.DeltaColumns) -> None:
        count, token_ids, at = len(columns.ids), columns.token_ids, 0
        choices = columns.choices or [0] * count
        counts = columns.token_counts or [1] * count
        if not len(choices) == len(counts) == len(columns.positions) == len(columns.texts) == count:
            raise ProtocolError("columns of deltas have different lengths")
        for index, request_id in enumerate(columns.ids):
            tokens = tuple(token_ids[at : at + counts[index]])
            at += counts[index]
            receiver = self._receivers.get(request_id)
            if receiver is not None:
                text = columns.texts[index]
                receiver.push(Delta(choices[index], columns.positions[index], tokens, text, ()))

    def _receive_event(self, message: inference_pb2.SessionEvent) -> None:
        if message.HasField("error"):
            receiver = self._receivers.pop(message.id, None)
            if receiver is not None:
                receiver.fail(BatonError.from_status(message.error))
            return
        event = event_from_proto(message)
        receiver = self._receivers.get(message.id)
        if type(event) is Finished:
            self._receivers.pop(message.id, None)
        if receiver is not None and event is not None:
            receiver.take(event)
