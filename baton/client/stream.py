"""A streaming call, blocking or for asyncio. `StreamState` makes the decisions of both."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, Self, TypeVar

from baton.client.answer import Answer
from baton.client.errors import BatonClientError, StreamClosedError
from baton.client.plain import AsyncCall, BlockingCall, End
from baton.client.state import Request, StreamState
from baton.request.stream_events import Delta, Event, Finished, Started

Call = TypeVar("Call", AsyncCall, BlockingCall)
OpenCall = Callable[[Request, float], Call]
"""Opens a call from a request and a timeout in seconds."""


class _Progress(Generic[Call]):
    """Base of the blocking and the asyncio stream."""

    def __init__(self, state: StreamState, open_call: OpenCall[Call]) -> None:
        self._state = state
        self._open_call: OpenCall[Call] = open_call
        self._call: Call | None = None
        self._closed = False

    @property
    def request_id(self) -> str:
        """Names the request in the cluster's logs and traces."""
        return self._state.request_id

    @property
    def started(self) -> Started | None:
        """Return the first event, once received."""
        return self._state.started

    @property
    def finished(self) -> Finished | None:
        """Return the last event, once received."""
        return self._state.finished

    @property
    def text(self) -> str:
        """Return the text of the first choice so far."""
        return self._state.text()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Return the tokens of the first choice so far."""
        return self._state.token_ids()

    def _opened(self) -> Call:
        if self._closed:
            raise StreamClosedError("the stream is closed")
        if self._call is None:
            self._call = self._open_call(*self._state.attempt(time.monotonic()))
        return self._call

    def _broke(self, error: BatonClientError) -> float:
        """Drop the broken call; return the seconds to wait before the next one, or raise if it is
        the last.
        """
        self._drop()
        if self._closed:
            raise StreamClosedError("the stream is closed") from error
        return self._state.failed(error, time.monotonic(), random.random())

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _shut(self) -> None:
        self._closed = True
        self._drop()


class Stream(_Progress[BlockingCall]):
    """Iterates over events. Use it as a context manager: leaving it cancels an open call.

    The first read opens the call. It raises the errors of `baton.client.errors`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        state = self._state
        if state.finished is not None:
            raise StopIteration
        try:
            while True:
                try:
                    event = (self._call or self._opened()).read()
                except BatonClientError as error:
                    time.sleep(self._broke(error))
                    continue
                if event is End.END:
                    state.ended()
                    raise StopIteration
                event = state.receive(event)
                if event is not None:
                    return event
        except BaseException:  # an error, or Ctrl-C: the cluster must stop working
            self.close()
            raise

    def iter_text(self) -> Iterator[str]:
        """Yield the text of the first choice, piece by piece."""
        for event in self:
            if isinstance(event, Delta) and event.choice == 0 and event.text:
                yield event.text

    def answer(self) -> Answer:
        """Read to the end and return the complete answer."""
        with self:
            for _ in self:
                pass
        return self._state.answer()

    def close(self) -> None:
        """Cancel the call if it is still open. May be called again, and from another thread."""
        self._shut()


class AsyncStream(_Progress[AsyncCall]):
    """`Stream` for asyncio: `async with` and `async for`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        state = self._state
        if state.finished is not None:
            raise StopAsyncIteration
        try:
            while True:
                try:
                    event = await (self._call or self._opened()).read()
                except BatonClientError as error:
                    await asyncio.sleep(self._broke(error))
                    continue
                if event is End.END:
                    state.ended()
                    raise StopAsyncIteration
                event = state.receive(event)
                if event is not None:
                    return event
        except BaseException:  # an error, or cancellation: the cluster must stop working
            self.close()
            raise

    async def iter_text(self) -> AsyncIterator[str]:
        """Yield the text of the first choice, piece by piece."""
        async for event in self:
            if isinstance(event, Delta) and event.choice == 0 and event.text:
                yield event.text

    async def answer(self) -> Answer:
        """Read to the end and return the complete answer."""
        async with self:
            async for _ in self:
                pass
        return self._state.answer()

    def close(self) -> None:
        """Cancel the call if it is still open. May be called again."""
        self._shut()
