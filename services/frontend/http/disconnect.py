"""Cancels the work on a request when its client closes the connection."""

import asyncio
from types import TracebackType

from services.frontend.http.body import ClientGoneError
from services.frontend.http.protocol.connection import Wire


class WhileConnected:
    """An async context whose body is cancelled once the client disconnects.

    Exits with ClientGoneError in that case.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._gone = False
        self._worker: asyncio.Task[object] | None = None

    async def __aenter__(self) -> None:
        if self._wire.lost:
            raise ClientGoneError
        self._worker = asyncio.current_task()
        self._wire.on_lost = self._lost

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wire.on_lost = None
        if self._gone and self._worker is not None and self._worker.uncancel() == 0:
            raise ClientGoneError from error

    def _lost(self) -> None:
        if self._worker is not None and not self._gone:
            self._gone = True
            self._worker.cancel()
