"""A connection's transport that can delay writes, to combine several into one."""

import asyncio
from collections.abc import Callable
from typing import Any


class HeldTransport(asyncio.Transport):
    """Wraps a transport; what is written between `hold` and `flush` becomes one write.

    Owned by its connection; lives on the event loop.

    Args:
        transport: of the socket.
        close: called instead of closing it.
    """

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.close = close  # type: ignore[method-assign]
        self._transport = transport
        self._held: list[bytes] | None = None
        self._write = transport.write
        self.get_write_buffer_size = transport.get_write_buffer_size  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]

    def let_go(self) -> None:
        """Drop all callbacks; the transport is closed."""
        self.close = self._transport.close  # type: ignore[method-assign]

    def hold(self) -> None:
        """Buffer writes until `flush`."""
        self._held = []

    def flush(self) -> None:
        """Write the buffered data."""
        held, self._held = self._held, None
        if held:
            self._write(b"".join(held))

    def write(self, data: Any) -> None:
        if self._held is None:
            self._write(data)
        else:
            self._held.append(data)

    def end_writing(self) -> bool:
        """Half-close: stop writing but keep reading; return False if the protocol cannot."""
        if not self._transport.can_write_eof():
            return False
        self._transport.write_eof()
        return True

    def close_now(self) -> None:
        """Close it after pending writes."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
