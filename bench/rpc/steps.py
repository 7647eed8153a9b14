"""The engine shared by the servers: it gives each call one token per step."""

import asyncio
import time
from collections.abc import Callable, Hashable

from baton.v1.inference_pb2 import ChatRequest, ChatResponse

METHOD = "/baton.v1.InferenceService/Chat"

OnToken = Callable[[ChatResponse, bool], None]
"""Receives the next message, and whether it is the last one."""


class Steps:
    """Calls every stream once per step, all together, like a message from a worker.

    Args:
        seconds: duration of a step.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._streams: dict[Hashable, tuple[OnToken, int, int]] = {}
        self._first = asyncio.Event()
        self.after: Callable[[], None] | None = None
        """Called after each step: servers that write once per connection do so here."""

    def add(self, key: Hashable, request: bytes | ChatRequest, on_token: OnToken) -> None:
        """Start a call's stream of `max_tokens` tokens with the next step."""
        parsed = ChatRequest.FromString(request) if isinstance(request, bytes) else request
        self._streams[key] = (on_token, 0, parsed.sampling.max_tokens)
        self._first.set()

    def remove(self, key: Hashable) -> None:
        """Stop a call's stream, if it has not ended."""
        self._streams.pop(key, None)

    async def run(self) -> None:
        """Step until cancelled; wait while there are no streams."""
        due = time.monotonic()
        while True:
            if not self._streams:
                self._first.clear()
                await self._first.wait()
                due = time.monotonic()
            self._step()
            due = max(due + self._seconds, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def _step(self) -> None:
        for key, (on_token, position, tokens) in list(self._streams.items()):
            last = position == tokens - 1
            if last:
                del self._streams[key]
            else:
                self._streams[key] = (on_token, position + 1, tokens)
            on_token(response(position), last)
        if self.after is not None:
            self.after()


def response(position: int) -> ChatResponse:
    """Return a token's message, as the frontend creates it."""
    made = ChatResponse()
    made.delta.position = position
    made.delta.token_ids.append(100 + position)
    made.delta.text = " w100"
    return made
