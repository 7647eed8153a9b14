"""Writes to a store over one Put stream: requests in order, and their responses."""

import asyncio
from collections import deque
from collections.abc import Callable

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import PutStream, StoreUnavailableError
from baton.rpc.wire.messages import Parts


class PutSession:
    """The reservations of one connection. Owned by it, on the asyncio loop.

    Args:
        stream: the open Put stream; `on_response` receives its messages.
        fail: breaks the connection for a given reason.
    """

    def __init__(self, stream: PutStream, fail: Callable[[str], None]) -> None:
        self._stream = stream
        self._fail = fail
        self._closed_reason: str | None = None
        self.reservations = 0
        """Number of slots that the store keeps reserved for this client now."""
        self._last_id = 0
        self._waiting: dict[int, deque[asyncio.Future[pb.PutResponse]]] = {}

    def new_id(self) -> int:
        """Return a new correlation id."""
        self._last_id += 1
        return self._last_id

    async def request(
        self, correlation_id: int, frame: pb.PutRequest, timeout: float
    ) -> pb.PutResponse:
        """Send a frame and return its response.

        Raises:
            StoreUnavailableError: the stream broke, or was closed because no response arrived
                within `timeout` seconds.
            BatonError: the store rejected the frame.
        """
        if self._closed_reason is not None:
            raise StoreUnavailableError(self._closed_reason)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[pb.PutResponse] = loop.create_future()
        self._waiting.setdefault(correlation_id, deque()).append(future)
        self._stream.send(frame)
        # Failing wakes every waiting request, including this one.
        timer = loop.call_later(timeout, self._fail, f"no response within {timeout:g} s")
        try:
            response = await future
        finally:
            timer.cancel()
        if response.HasField("error"):
            raise BatonError.from_status(response.error.status)
        return response

    def abandon(self, correlation_id: int, slots: int = 0) -> None:
        """Release `slots` reserved slots of an id that were not committed."""
        if self._closed_reason is None:
            self.reservations -= slots
            frame = pb.Abandon(correlation_id=correlation_id)
            self._stream.send(pb.PutRequest(abandon=frame))

    def count_committed(self, slots: int) -> None:
        """Subtract slots that are no longer reserved."""
        if self._closed_reason is None:
            self.reservations -= slots

    async def send_bulk(self, frame: pb.PutRequest | Parts) -> None:
        """Queue a frame that has no response, once few others are waiting."""
        await self._stream.send_bulk(frame)

    def close(self, reason: str) -> None:
        """Drop all reservations, and raise StoreUnavailableError in every waiting request."""
        self._closed_reason = reason
        self.reservations = 0
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(StoreUnavailableError(reason))
                    future.exception()  # its task may have ended without awaiting it

    def on_response(self, frame: pb.PutResponse) -> None:
        """Pass a message of the stream to the request that waits for it."""
        kind = frame.WhichOneof("frame")
        correlation_id = getattr(frame, kind).correlation_id if kind else 0
        futures = self._waiting.get(correlation_id)
        if futures:
            future = futures.popleft()
            if not futures:
                del self._waiting[correlation_id]
            if not future.done():
                future.set_result(frame)
