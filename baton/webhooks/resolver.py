"""Addresses of receivers' hosts, looked up without disturbing others."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

_THREADS = 16


class ReceiverResolver(AbstractResolver):
    """Looks up hosts in threads of its own, each in one thread at a time.

    Clients choose the hosts, and name servers of theirs may take half a minute: for a host one
    thread waits then, and none of those that the rest of the process uses.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "webhooks-dns")
        self._running: dict[tuple[str, int, int], asyncio.Future[Any]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            OSError: it has none.
        """
        key = host, port, int(family)
        running = self._running.get(key)
        if running is None:
            look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
            running = asyncio.get_running_loop().run_in_executor(self._threads, look_up)
            self._running[key] = running
            running.add_done_callback(partial(self._done, key))
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=one,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for one, _, protocol, _, address in await asyncio.shield(running)
        ]

    async def close(self) -> None:
        """Look up nothing more; do not wait for what is being looked up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, key: tuple[str, int, int], done: "asyncio.Future[Any]") -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # told to those who wait, if there is any
