"""The events of a session's requests since its last message."""

from baton.errors import BatonError
from baton.request.stream_events import Delta, Event, event_to_proto
from baton.v1 import inference_pb2

_DELTA_BYTES = 8
_TOKEN_BYTES = 3


class Outgoing:
    """Collects events for one message, plain deltas as columns. Bounded by its callers.

    Of 64 deltas, columns take 0.6 µs each to write and 0.8 to read, where a message each takes 2.8
    and 3.2.
    """

    def __init__(self) -> None:
        self.size = 0
        """Approximate bytes of the message; 0: it is empty."""
        self._ids: list[int] = []
        self._choices: list[int] = []
        self._positions: list[int] = []
        self._counts: list[int] = []
        self._token_ids: list[int] = []
        self._texts: list[str] = []
        self._events: list[inference_pb2.SessionEvent] = []
        self._in_events: set[int] = set()
        """Requests with queued events: their next output must come after these."""

    def add(self, request_id: int, events: list[Event]) -> None:
        """Add a request's next events."""
        for event in events:
            if (
                type(event) is Delta
                and not (event.logprobs or event.parts)
                and request_id not in self._in_events
            ):
                self._ids.append(request_id)
                self._choices.append(event.choice)
                self._positions.append(event.position)
                self._counts.append(len(event.token_ids))
                self._token_ids += event.token_ids
                self._texts.append(event.text)
                self.size += _DELTA_BYTES + len(event.text) + _TOKEN_BYTES * len(event.token_ids)
            else:
                message = self._event(request_id)
                event_to_proto(event, message)
                self.size += message.ByteSize()

    def fail(self, request_id: int, error: BatonError) -> None:
        """Add the error of a request that failed."""
        message = self._event(request_id)
        message.error.CopyFrom(error.to_status())
        self.size += message.ByteSize()

    def message(self) -> inference_pb2.SessionResponse:
        """Return the message of all added events."""
        response = inference_pb2.SessionResponse(events=self._events)
        count = len(self._ids)
        if count:
            columns = response.deltas
            columns.ids.extend(self._ids)
            columns.positions.extend(self._positions)
            columns.token_ids.extend(self._token_ids)
            columns.texts.extend(self._texts)
            if any(self._choices):
                columns.choices.extend(self._choices)
            if self._counts.count(1) != count:
                columns.token_counts.extend(self._counts)
        return response

    def _event(self, request_id: int) -> inference_pb2.SessionEvent:
        event = inference_pb2.SessionEvent(id=request_id)
        self._events.append(event)
        self._in_events.add(request_id)
        return event
