"""A DNS server that answers with addresses of this machine."""

import asyncio
import socket
from typing import Self

_TYPE_A = 1


class DnsServer(asyncio.DatagramProtocol):
    """Answers every question for IPv4 addresses with `ips`, and others with an empty answer.

    Args:
        ips: the addresses; change them at any time.
    """

    def __init__(self, *ips: str) -> None:
        self.ips = list(ips)
        self.asked = 0
        """Number of questions so far."""
        self.address = ""
        """`host:port` of this server."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self._transport = transport
        host, port = transport.get_extra_info("sockname")
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        end = data.index(0, 12) + 5  # the name, its end, type and class
        question = data[12:end]
        found = self.ips if int.from_bytes(question[-4:-2], "big") == _TYPE_A else []
        header = data[:2] + b"\x85\x80" + bytes((0, 1, 0, len(found), 0, 0, 0, 0))
        record = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04"
        answers = b"".join(record + socket.inet_aton(ip) for ip in found)
        self._transport.sendto(header + question + answers, addr)
