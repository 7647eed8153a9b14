"""Events that wait until their request's client reads."""

from collections.abc import Sequence

from baton.v1 import common_pb2
from services.frontend.workers.events import ProviderOutput, StreamEvent, TokensReceived

# Approximate memory of the events in Python.
_EVENT_BYTES = 160
_TOKEN_BYTES = 40
_ENTRY_BYTES = 41
"""Per log probability, as bytes; as a message, one with 20 alternatives takes 2.5 KB."""


class _WaitingTokens:
    """Tokens of one choice, in order, with their log probabilities still encoded."""

    __slots__ = ("choice", "entries", "position", "stream_id", "token_ids")

    def __init__(self, stream_id: int, choice: int, position: int) -> None:
        self.stream_id = stream_id
        self.choice = choice
        self.position = position
        self.token_ids: list[int] = []
        self.entries: list[bytes] = []

    def received(self) -> TokensReceived:
        entries = [common_pb2.TokenLogprob.FromString(entry) for entry in self.entries]
        return TokensReceived(self.stream_id, self.choice, self.position, self.token_ids, entries)


class EventQueue:
    """Events of one request, in order; tokens that continue a choice's last ones are merged.

    Tokens may overtake events of other streams, but not of their own.

    Args:
        limit_bytes: most bytes of all events.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._events: list[StreamEvent | _WaitingTokens] = []
        self._last: dict[tuple[int, int], _WaitingTokens] = {}
        """Mergeable tokens, by stream and choice."""
        self.bytes = 0
        """Approximate bytes of its events."""

    def __bool__(self) -> bool:
        return bool(self._events)

    def add_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """Add tokens; return False, and add nothing, if they do not fit."""
        entries = [entry.SerializeToString() for entry in logprobs]
        cost = len(token_ids) * _TOKEN_BYTES + sum(_ENTRY_BYTES + len(one) for one in entries)
        last = self._last.get((stream_id, choice))
        if last is None or last.position + len(last.token_ids) != position:
            if not self._fits(cost + _EVENT_BYTES):
                return False
            last = self._last[stream_id, choice] = _WaitingTokens(stream_id, choice, position)
            self._events.append(last)
        elif not self._fits(cost):
            return False
        last.token_ids.extend(token_ids)
        last.entries.extend(entries)
        return True

    def add(self, event: StreamEvent) -> bool:
        """Add any other event; return False if it does not fit."""
        text = event.bytes if type(event) is ProviderOutput else 0
        if not self._fits(_EVENT_BYTES + text):
            return False
        self._last.clear()
        self._events.append(event)
        return True

    def take(self) -> list[StreamEvent]:
        """Remove all and return them."""
        events = [
            event.received() if type(event) is _WaitingTokens else event for event in self._events
        ]
        self.clear()
        return events  # type: ignore[return-value]  # what is kept packed was unpacked

    def clear(self) -> None:
        """Drop all."""
        self._events.clear()
        self._last.clear()
        self.bytes = 0

    def _fits(self, cost: int) -> bool:
        if self.bytes + cost > self._limit_bytes:
            return False
        self.bytes += cost
        return True
