"""Ends the work on a request when its client closes the connection."""

import asyncio
from types import TracebackType

from starlette.types import Receive

from services.frontend.http.body import ClientGoneError


class WhileConnected:
    """An async context: what runs inside is cancelled once the client is gone.

    The body of the request must have been read. Leaves with ClientGoneError in that case.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._worker: asyncio.Task[object] | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._worker = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone and self._worker is not None and self._worker.uncancel() == 0:
            raise ClientGoneError from error

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._worker is not None:
            self._gone = True
            self._worker.cancel()
