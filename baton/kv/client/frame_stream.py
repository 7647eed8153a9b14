"""The client's side of a long-lived stream of frames: one writer, a bounded queue."""

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.cancelled import task_is_cancelled

Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_QUEUED = 65_536
"""Control frames that may wait to be written; a stream with more is stuck and is ended."""
MAX_BULK_QUEUED = 8
"""Frames that may wait before `send` holds its caller up."""


class FrameStream(Generic[Request, Response]):
    """Wraps a bidirectional call. grpc.aio allows one write at a time: a task does them all."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._queue: deque[Request] = deque()
        self._queued = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._writer = asyncio.create_task(self._write(), name="frame-stream-writer")

    def post(self, frame: Request) -> None:
        """Queue a control frame; on a stream that has ended it is dropped."""
        if self._closed:
            return
        if len(self._queue) >= MAX_QUEUED:
            self._stop()
            return
        self._queue.append(frame)
        self._queued.set()
        if len(self._queue) >= MAX_BULK_QUEUED:
            self._room.clear()

    async def send(self, frame: Request) -> None:
        """Queue a frame with bulk data, as soon as few others wait."""
        while not self._closed and not self._room.is_set():
            await self._room.wait()
        self.post(frame)

    async def read(self) -> Response:
        """The next frame.

        Raises:
            BatonError: the stream ended, whoever ended it.
        """
        try:
            frame: Response = await self._call.read()
        except grpc.RpcError as error:
            raise BatonError.from_rpc_error(error) from error
        except asyncio.CancelledError:
            if self._call.cancelled() and not task_is_cancelled():
                raise BatonError(Reason.CANCELLED, "the stream was closed here") from None
            raise
        if frame is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            raise BatonError(Reason.UNAVAILABLE, "the stream was ended by the server")
        return frame

    async def aclose(self) -> None:
        """End the call; what was not written yet is lost. Safe to call twice."""
        self._stop()
        self._writer.cancel()
        await asyncio.wait([self._writer])

    def _stop(self) -> None:
        self._closed = True
        self._queue.clear()
        self._room.set()
        self._call.cancel()

    async def _write(self) -> None:
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                frame = self._queue.popleft()
                if len(self._queue) < MAX_BULK_QUEUED:
                    self._room.set()
                try:
                    await self._call.write(frame)
                except (grpc.RpcError, asyncio.InvalidStateError):
                    # The call is over; `read` says why.
                    self._closed = True
                    self._queue.clear()
                    self._room.set()
                    return
