"""A connection's transport that can hold writes back, to make one of several."""

import asyncio
from collections.abc import Callable
from typing import Any


class HeldTransport(asyncio.Transport):
    """Passes everything on to a transport; what is written between `hold` and `flush` is one write.

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
        """Call nobody back any more; it is closed."""
        self.close = self._transport.close  # type: ignore[method-assign]

    def hold(self) -> None:
        """Keep what is written until `flush`."""
        self._held = []

    def flush(self) -> None:
        """Write what was kept."""
        held, self._held = self._held, None
        if held:
            self._write(b"".join(held))

    def write(self, data: Any) -> None:
        if self._held is None:
            self._write(data)
        else:
            self._held.append(data)

    def end_writing(self) -> bool:
        """Write no more, and go on reading; return False where the socket's protocol cannot."""
        if not self._transport.can_write_eof():
            return False
        self._transport.write_eof()
        return True

    def close_now(self) -> None:
        """Close it, behind what was written."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
