"""The client's side of long-lived calls.

grpc.aio allows one write at a time, and never ends a call that is merely dropped.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import grpc

from baton.errors import BatonError, Reason
from baton.rpc.cancelled import task_is_cancelled
from baton.rpc.streams.send_queue import SendQueue
from baton.telemetry.logs import get_logger
from baton.telemetry.scope import detached_context

log = get_logger(__name__)

Frame = TypeVar("Frame")
Response = TypeVar("Response")

MAX_BULK_QUEUED = 8
"""Frames that may wait before `ClientStream.send_bulk` holds its caller up."""


class ClientStream(Generic[Frame, Response]):
    """The client's side of one call: a bounded send queue, its writer, and what is received.

    Owned by whoever opened the call, who calls `close`, and awaits `wait_closed`, in a `finally`.
    Responses are either pulled with `read`, or pushed by a task of the stream after `start_reader`.
    Its tasks run detached: they outlive the request that opened the stream.

    Args:
        call: a stream-stream call of grpc.aio.
        queue: what is sent; a queue that fails closes the stream.
        write_seconds: a message that takes longer to be written closes the stream; None: no limit.
    """

    def __init__(
        self, call: Any, queue: SendQueue[Frame, Any], write_seconds: float | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._call = call
        self._queue = queue
        self._write_seconds = write_seconds
        self._on_closed: Callable[[BatonError], None] | None = None
        self.last_received_at = loop.time()
        """Loop time of the latest message, or of the stream's opening."""
        self.error: BatonError | None = None
        """Why the stream is closed; None while it is open."""
        self._tasks = [loop.create_task(self._write(), context=detached_context())]

    @property
    def closed(self) -> bool:
        return self.error is not None

    def start_reader(
        self, on_message: Callable[[Response], None], on_closed: Callable[[BatonError], None]
    ) -> None:
        """Give every message to `on_message` as it comes, and why the stream closed, once, last.

        A BatonError that `on_message` raises closes the stream, as does any other error (INTERNAL).
        """
        self._on_closed = on_closed
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._read_all(on_message), context=detached_context()))

    def send(self, frame: Frame) -> None:
        """Queue a frame; on a closed stream it is dropped."""
        if not self._queue.put(frame):
            # Not at once: the caller is in the middle of something.
            error = BatonError(Reason.SLOW_CONSUMER, "write queue full")
            asyncio.get_running_loop().call_soon(self.close, error)

    async def send_bulk(self, frame: Frame) -> None:
        """Queue a frame with bulk data, once few others wait."""
        await self._queue.wait_below(MAX_BULK_QUEUED)
        self.send(frame)

    async def read(self) -> Response:
        """Return the next message.

        Raises:
            BatonError: the stream ended; CANCELLED if it was closed on this side.
        """
        try:
            message: Response = await self._call.read()
        except grpc.RpcError as error:
            raise BatonError.from_rpc_error(error) from error
        except asyncio.CancelledError:
            if self._call.cancelled() and not task_is_cancelled():
                closed = BatonError(Reason.CANCELLED, "the stream was closed on this side")
                raise self.error or closed from None
            raise
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            raise BatonError(Reason.UNAVAILABLE, "the server ended the stream")
        self.last_received_at = asyncio.get_running_loop().time()
        return message

    def close(self, error: BatonError | None = None) -> None:
        """End the call; what was not written yet is lost. A second call does nothing."""
        if self.error is not None:
            return
        self.error = error or BatonError(Reason.CANCELLED, "the stream was closed on this side")
        self._queue.fail(self.error)
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        if self._on_closed is not None:
            self._on_closed(self.error)

    async def wait_closed(self) -> None:
        """Return once the stream's tasks have ended; after `close`."""
        await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Close the stream and wait for its tasks."""
        self.close()
        await self.wait_closed()

    async def _write(self) -> None:
        try:
            async for message in self._queue.messages():
                async with asyncio.timeout(self._write_seconds):
                    await self._call.write(message)
        except TimeoutError:
            limit = f"a message was not taken within {self._write_seconds:g} s"
            self.close(BatonError(Reason.SLOW_CONSUMER, limit))
        except BatonError as error:
            self.close(error)
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            if len(self._tasks) == 1:
                # Reading tells why, also what was received before.
                self._queue.fail(BatonError(Reason.UNAVAILABLE, "the call is over"))
            elif isinstance(error, grpc.RpcError):
                self.close(BatonError.from_rpc_error(error))
            else:
                self.close(BatonError(Reason.UNAVAILABLE, "the call is over"))

    async def _read_all(self, on_message: Callable[[Response], None]) -> None:
        clock = asyncio.get_running_loop().time
        read, end = self._call.read, grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
        error = BatonError(Reason.UNAVAILABLE, "the server ended the stream")
        try:
            while (message := await read()) is not end:
                self.last_received_at = clock()
                on_message(message)
        except grpc.aio.AioRpcError as failure:
            error = BatonError.from_rpc_error(failure)
        except BatonError as failure:
            error = failure
        except Exception:
            log.exception("message handler failed, closing the stream")
            error = BatonError(Reason.INTERNAL, "a message could not be handled")
        finally:
            self.close(error)


async def messages(call: Any, idle_seconds: float) -> AsyncGenerator[Any]:
    """Yield the messages of a server-streaming call, to its end.

    Args:
        call: a call of grpc.aio; it is cancelled in the end.
        idle_seconds: the longest time between two messages.

    Raises:
        BatonError: DEADLINE where no message came in time, else the call's own error.
    """
    try:
        while True:
            async with asyncio.timeout(idle_seconds):
                message = await call.read()
            if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                return
            yield message
    except TimeoutError as error:
        raise BatonError(Reason.DEADLINE, f"no message for {idle_seconds:g} s") from error
    except grpc.aio.AioRpcError as error:
        raise BatonError.from_rpc_error(error) from error
    finally:
        call.cancel()


async def receive(call: Any, idle_seconds: float) -> AsyncGenerator[Any]:
    """Yield the messages of a server-streaming call, which never just ends.

    Args:
        call: a call of grpc.aio; it is cancelled in the end.
        idle_seconds: the longest time between two messages.

    Raises:
        BatonError: always, in the end: UNAVAILABLE where the server ended the stream, else as
            `messages` does.
    """
    async with aclosing(messages(call, idle_seconds)) as received:
        async for message in received:
            yield message
    raise BatonError(Reason.UNAVAILABLE, "the server ended the stream")
