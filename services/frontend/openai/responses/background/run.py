"""One response that runs in the background at this frontend."""

import asyncio
from collections.abc import Sequence

from baton.conversations.background.events import pack, split
from baton.conversations.background.records import EventPiece, RunLease
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event, Started
from services.frontend.generation.generation import Generation
from services.frontend.openai.responses.background.output import (
    OutputPart,
    SingleTokens,
    pack_output,
)
from services.frontend.openai.responses.encoder import ResponseEncoder
from services.frontend.openai.responses.storing import TurnContext
from services.frontend.requests.request import ResolvedRequest

_KEPT_EVENTS = 512
"""Events that stay in memory after they are stored, for clients that follow."""
_MOST_EVENTS = 16_384
"""Events that wait for the database; then the response pauses."""


class BackgroundRun:
    """The events of a response while it runs: made here, stored, and read by those who follow.

    Lives on the event loop. Events are numbered from 0; `first` to `next` - 1 are in memory.
    Clients see them at once if another frontend would make the same ones, and otherwise once they
    are stored: what a client saw is never made anew.

    Args:
        lease: under which it runs.
    """

    def __init__(self, lease: RunLease) -> None:
        self.lease = lease
        self.ended = False
        """Whether its end is stored, or it runs here no longer."""
        self.cancelling = False
        """Whether a client cancelled it."""
        self.moved = False
        """Whether another frontend has it, or will have it, or it was deleted."""
        self.handing_over = False
        """Whether its lease is to be released once it has stopped."""
        self.kept = False
        """Whether the database has it."""
        self.first = self._stored = 0
        self._made = 0
        """Events before this one may be stored."""
        self._shown = 0
        """Events before this one may be sent to clients."""
        self._events: list[bytes] = []
        self._tokens = OutputPart()
        """Those of events that are not stored."""
        self._in_flight = 0
        """Tokens of the latest `piece`."""
        self._changed: asyncio.Future[None] | None = None
        self._single: SingleTokens
        self._generation: Generation | None = None
        self.encoder: ResponseEncoder
        self.context: TurnContext

    @property
    def next(self) -> int:
        return self.first + len(self._events)

    @property
    def request(self) -> ResolvedRequest:
        """What it generates."""
        assert self._generation is not None, "attach comes first"
        return self._generation.request

    @property
    def exact(self) -> bool:
        """Whether another frontend would continue it with the same tokens."""
        request = None if self._generation is None else self._generation.request
        return request is not None and not request.body and request.exact_continuation

    def attach(
        self, generation: Generation, encoder: ResponseEncoder, context: TurnContext
    ) -> None:
        """Set what generates it, and what encodes it."""
        self._generation, self.encoder, self.context = generation, encoder, context
        self._single = SingleTokens(generation.request)

    def restore(self, started: Started, kept: OutputPart) -> None:
        """Bring the encoder to where an earlier owner stored its events and tokens."""
        self.encoder.take(0, started)
        for delta in self._single.push(kept):
            self.encoder.take(0, delta)
        self.begin_at(self.encoder.next_number)

    def begin_at(self, number: int) -> None:
        """Set the number of the first event that is made here."""
        self.first = self._stored = self._made = self._shown = number

    def take(self, events: list[Event]) -> bool:
        """Add events of the generation."""
        for event in events:
            if type(event) is Delta:
                for delta in self._single.split(event):
                    self.add(self.encoder.take(0, delta))
                self._tokens.add(OutputPart(list(event.token_ids), list(event.logprobs)))
            elif type(event) is not Started or not self.next:
                self.add(self.encoder.take(0, event))
        self._made = self.next
        if self.exact:
            self._show(self.next)
        if self.next - self._stored > _MOST_EVENTS and self._generation is not None:
            self._generation.buffer.pause()
        return False

    def add(self, data: bytes) -> None:
        """Add encoded events, which clients do not see before `finish`."""
        self._events += split(data) if data else ()

    def retract(self, number: int) -> None:
        """Remove events that clients do not see yet, from a number on."""
        del self._events[number - self.first :]

    def _show(self, number: int) -> None:
        """Let clients have the events before a number."""
        self._shown = max(self._shown, number)
        if self._changed is not None:
            changed, self._changed = self._changed, None
            if not changed.done():
                changed.set_result(None)

    def piece(self, *, whole: bool = False) -> EventPiece | None:
        """Return what the generation made and is not stored yet, for `stored`; None: nothing.

        Args:
            whole: with what was added after it.
        """
        end = self.next if whole else self._made
        if self._stored == end:
            return None
        events = self._events[self._stored - self.first : end - self.first]
        self._in_flight = len(self._tokens.token_ids)
        return EventPiece(end - 1, pack(b"".join(events)), pack_output(self._tokens))

    def stored(self, piece: EventPiece) -> None:
        """Record that the latest result of `piece` is stored."""
        self._stored, tokens = piece.last + 1, self._tokens
        self._tokens = OutputPart(
            tokens.token_ids[self._in_flight :], tokens.logprobs[self._in_flight :]
        )
        if not self.exact:
            self._show(self._stored)
        surplus = self._stored - self.first - _KEPT_EVENTS
        if surplus > 0:
            del self._events[:surplus]
            self.first += surplus
        if self._generation is not None:
            self._generation.buffer.resume()

    def events_from(self, number: int) -> Sequence[bytes] | None:
        """Return events from a number on, which may be none; None: they are in memory no longer."""
        if number < self.first:
            return None
        return self._events[number - self.first : self._shown - self.first]

    async def changed(self) -> None:
        """Return once there are more events, or it has ended."""
        if self.ended:
            return
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def cancel(self) -> None:
        """End it as cancelled. Idempotent."""
        self.cancelling = True
        self._end(BatonError(Reason.CANCELLED, "the response was cancelled"))

    def move(self) -> None:
        """End it here without an end: another frontend continues it, or it was deleted."""
        self.moved = True
        self._end(BatonError(Reason.ABORTED, "the response continues at another frontend"))

    async def follow(self) -> None:
        """Take all events of its generation.

        Raises:
            BatonError: it failed, was cancelled, or has moved.
        """
        assert self._generation is not None, "attach comes first"
        if self.moved:
            self.move()
        elif self.cancelling:
            self.cancel()
        await self._generation.follow(self.take)

    def finish(self) -> None:
        """Tell those who follow that it has ended, or runs here no longer."""
        self.ended = True
        self._show(self._shown if self.moved and not self.exact else self.next)

    def _end(self, error: BatonError) -> None:
        if self._generation is not None:
            self._generation.end(error)
