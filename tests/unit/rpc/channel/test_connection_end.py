"""How connections end: each transport hears it once."""

import asyncio
from typing import Any

from baton.rpc.channel.connection import ClientConnection
from baton.settings import LivenessSettings


class Tls(asyncio.Transport):
    """Like TLS of Python 3.11.2: closed a second time, it can be asked nothing more."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        """It is lost."""

    def writelines(self, list_of_data: Any) -> None:
        """It is lost."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def is_closing(self) -> bool:
        return bool(self.calls)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        assert self.calls.count("close") <= 1, "its protocol is gone"
        self.calls.append("abort")


async def test_a_connection_that_is_closed_again_can_still_be_aborted() -> None:
    transport = Tls()
    connection = ClientConnection(b"x", lambda _: None, lambda: None, LivenessSettings())
    connection.connection_made(transport)
    for _ in range(2):
        connection.close()
    connection.abort()
    connection.connection_lost(None)
    assert transport.calls == ["close", "abort"]
