"""The incoming messages of one stream, queued for their reader, on either side of a call."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from baton.errors import BatonError
from baton.rpc.wire.messages import Data, MessageReader

END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
"""Returned by `read` once the other side has ended."""
_MESSAGE_BYTES = 64
"""Cost of a waiting message in addition to its bytes, because many empty ones use memory too."""


class Inbox:
    """Splits bytes into messages, and queues them until they are read, or passes them to a
    callback.

    The other side's window stays closed while more bytes wait than may be read ahead.

    Args:
        reader: splits the bytes.
        deserialize: decodes a message.
        malformed: error for a message that `deserialize` rejects.
        read_ahead: bytes that may wait.
        acknowledge: opens the window by this many bytes.
    """

    __slots__ = (
        "_deserialize",
        "_malformed",
        "_messages",
        "_on_end",
        "_on_message",
        "_read_ahead",
        "_waiter",
        "_waiting_bytes",
        "_window_bytes",
        "acknowledge",
        "closed",
        "ended",
        "held",
        "reader",
    )

    def __init__(
        self,
        reader: MessageReader,
        deserialize: Callable[[Data], Any],
        malformed: BatonError,
        read_ahead: int,
        acknowledge: Callable[[int], None],
    ) -> None:
        self.reader = reader
        self.held = False
        """Whether the callback accepts nothing now."""
        self.ended = False
        """Whether no more messages arrive."""
        self.closed = False
        """Whether no more messages are delivered."""
        self._deserialize = deserialize
        self._malformed = malformed
        self._read_ahead = read_ahead
        self.acknowledge = acknowledge
        """Opens the window by this many bytes."""
        self._messages: deque[Data] = deque()
        self._waiting_bytes = 0
        self._window_bytes = 0
        """Bytes by which the window is kept closed."""
        self._waiter: asyncio.Future[None] | None = None
        self._on_message: Callable[[Any], None] | None = None
        self._on_end: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def feed(self, data: bytes | memoryview) -> int:
        """Process the next bytes; return how many messages they completed.

        Raises:
            Exception: the bytes are not valid messages, or the callback raised.
        """
        messages = self.reader.feed(data) if data else []
        for message in messages:
            if self.closed:
                return len(messages)
            if self._on_message is not None and not self.held and not self._messages:
                self._on_message(self._parse(message))
            else:
                self._messages.append(message)
                self._waiting_bytes += len(message) + _MESSAGE_BYTES
        if self.closed:
            return len(messages)
        if self._waiting_bytes < self._read_ahead:
            self.acknowledge(len(data))
        else:
            self._window_bytes += len(data)
        if self._messages:
            self.wake()
        return len(messages)

    def end(self) -> None:
        """Record that no more messages arrive."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Have a waiting `read` check again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def give_to(
        self, on_message: Callable[[Any], None], on_end: Callable[[], None] | None = None
    ) -> None:
        """Pass messages to a callback as they arrive; `deliver` passes it the waiting ones.

        Args:
            on_message: must not wait.
            on_end: called once, by `deliver`, when all were passed and no more arrive.
        """
        self._on_message, self._on_end = on_message, on_end

    def let_go(self) -> None:
        """Drop the callbacks."""
        self._on_message = self._on_end = None

    def deliver(self) -> None:
        """Pass the waiting messages to the callback.

        Raises:
            Exception: a message is malformed, or a callback raised.
        """
        while self._messages and not self.held and self._on_message is not None:
            self._on_message(self.take())
        if self._on_end is not None and self.ended and not self._messages:
            on_end, self._on_end = self._on_end, None
            on_end()

    async def read(self) -> Any:
        """Return the next message; `END` once the other side has ended.

        Raises:
            BatonError: the message is malformed.
        """
        while not self._messages:
            if self.ended:
                return END
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def take(self) -> Any:
        """Return the next message, which must exist.

        Raises:
            BatonError: it is malformed.
        """
        data = self._messages.popleft()
        self._waiting_bytes -= len(data) + _MESSAGE_BYTES
        if self._window_bytes and self._waiting_bytes < self._read_ahead and not self.closed:
            self.acknowledge(self._window_bytes)
            self._window_bytes = 0
        return self._parse(data)

    def _parse(self, data: Data) -> Any:
        try:
            return self._deserialize(data)
        except DecodeError as error:
            raise self._malformed from error
