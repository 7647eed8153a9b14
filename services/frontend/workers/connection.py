"""The connection to one worker: one Run call that carries many numbered streams.

One task reads and one writes. Frames go out in the order in which they were given; those queued
while a message is written leave together in the next one. The write queue is bounded: a worker that
lets it fill up, or takes longer than 5 s for a message, counts as lost and the connection closes,
with a StreamLost event for every stream on it. Stream ids are never used twice, so a frame of a
released stream finds no buffer.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import cast

import grpc

from baton.errors import BatonError
from baton.internal.v1 import router_pb2, worker_pb2, worker_pb2_grpc
from baton.rpc.protocol import check_hello, hello
from baton.telemetry.scope import detached_context
from services.frontend.metrics import LATE_FRAMES, WORKER_STREAMS
from services.frontend.workers.event_buffer import EventBuffer, StreamLost

MAX_QUEUED_FRAMES = 4096
MAX_FRAMES_PER_MESSAGE = 64
MAX_TOKENS_PER_MESSAGE = 65536
"""Of all frames in a message but the first; 5 bytes each, of the 4 MiB that a server reads."""
_WRITE_SECONDS = 5.0


class ConnectionLostError(Exception):
    """The connection is closed; its worker may be gone."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(instance_id)
        self.instance_id = instance_id


class WorkerConnection:
    """One Run call. Made by `WorkerPool`."""

    def __init__(
        self,
        target: router_pb2.Target,
        channel: grpc.aio.Channel,
        stream_ids: "itertools.count[int]",
        on_closed: Callable[["WorkerConnection", str, bool], None],
    ) -> None:
        self.target = target
        self._stream_ids = stream_ids
        self._on_closed = on_closed
        self._streams: dict[int, EventBuffer] = {}
        self._queue = deque([worker_pb2.FrameToWorker(hello=hello())])
        self._more = asyncio.Event()
        self._more.set()
        self._greeted = False
        self._is_closed = False
        loop = asyncio.get_running_loop()
        self.last_received_at = loop.time()
        """Loop time of the latest frame, or of the moment since which one is expected."""
        self._call: grpc.aio.StreamStreamCall[worker_pb2.RunRequest, worker_pb2.RunResponse]
        self._call = worker_pb2_grpc.WorkerServiceStub(channel).Run()  # type: ignore[call-arg]  # the stub wants an iterator, grpc.aio does not
        # They outlive the request that happens to be the first, and serve all: not in its name.
        self._tasks = [
            loop.create_task(task, context=detached_context())
            for task in (self._read(), self._write())
        ]

    @property
    def busy(self) -> bool:
        """Whether any stream is open."""
        return bool(self._streams)

    def start(self, start: worker_pb2.Start, buffer: EventBuffer) -> int:
        """Start a stream and return its id, which `start.stream_id` is set to.

        Its events go to `buffer`.

        Raises:
            ConnectionLostError: the connection is closed; nothing was started.
        """
        if self._is_closed:
            raise ConnectionLostError(self.target.instance_id)
        stream_id = start.stream_id = next(self._stream_ids)
        if not self._streams:
            self.last_received_at = asyncio.get_running_loop().time()
        self._streams[stream_id] = buffer
        WORKER_STREAMS.inc()
        self._send(worker_pb2.FrameToWorker(start=start))
        return stream_id

    def send(self, frame: worker_pb2.FrameToWorker) -> None:
        """Send a frame about a stream; ignored once the connection is closed."""
        if not self._is_closed:
            self._send(frame)

    def release(self, stream_id: int) -> None:
        """Cancel a stream unless it has ended; its events are dropped from now on."""
        if self._streams.pop(stream_id, None) is not None:
            WORKER_STREAMS.dec()
            self.send(worker_pb2.FrameToWorker(cancel=worker_pb2.Cancel(stream_id=stream_id)))

    def close(self, reason: str, *, expected: bool = False) -> None:
        """End the call and put StreamLost into the buffer of every stream. Idempotent.

        Args:
            reason: for the log.
            expected: the worker's state is known; it need not be probed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        self._queue.clear()
        streams, self._streams = self._streams, {}
        WORKER_STREAMS.dec(len(streams))
        self._on_closed(self, reason, expected)
        for stream_id, buffer in streams.items():
            buffer.put(StreamLost(stream_id))

    async def wait_closed(self) -> None:
        """Return when the connection's tasks have ended."""
        await asyncio.wait(self._tasks)

    def _send(self, frame: worker_pb2.FrameToWorker) -> None:
        if len(self._queue) >= MAX_QUEUED_FRAMES:
            # Not at once: the caller is in the middle of something.
            asyncio.get_running_loop().call_soon(self.close, "it does not read")
            return
        self._queue.append(frame)
        self._more.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._queue:
                    async with asyncio.timeout(_WRITE_SECONDS):
                        await self._call.write(self._message())
        except TimeoutError:
            self.close("it does not read")
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The reader knows the reason; this is for the case that it waits.
            self.close("the stream broke")

    def _message(self) -> worker_pb2.RunRequest:
        """Return the next message: as many queued frames as fit, at least one."""
        frames, tokens = [self._queue.popleft()], 0
        while self._queue and len(frames) < MAX_FRAMES_PER_MESSAGE:
            start, generate = self._queue[0].start, self._queue[0].generate
            tokens += len(start.prompt_token_ids) + len(start.generate.output_so_far)
            tokens += len(generate.output_so_far)
            if tokens > MAX_TOKENS_PER_MESSAGE:
                break
            frames.append(self._queue.popleft())
        return worker_pb2.RunRequest(frames=frames)

    async def _read(self) -> None:
        reason = "it ended the stream"
        clock = asyncio.get_running_loop().time
        try:
            while True:
                response = await self._call.read()
                if response is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                    break
                self.last_received_at = clock()
                frames = cast(worker_pb2.RunResponse, response).frames
                if not self._greeted:
                    self._greeted = True
                    check_hello(frames, self.target.instance_id)
                for frame in frames:
                    self._deliver(frame)
        except BatonError as error:
            reason = error.message
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        finally:
            self.close(reason)

    def _deliver(self, frame: worker_pb2.FrameFromWorker) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "step":
            streams = self._streams
            for entry in frame.step.streams:
                stream_id = entry.stream_id
                buffer = streams.get(stream_id)
                if buffer is None:
                    LATE_FRAMES.inc()
                else:
                    buffer.put_tokens(
                        stream_id,
                        entry.choice,
                        entry.position,
                        entry.token_ids,
                        entry.logprobs,
                    )
        elif kind == "prepared":
            buffer = self._streams.get(frame.prepared.stream_id)
            if buffer is not None:
                buffer.put(frame.prepared)
        elif kind == "finished":
            buffer = self._forget(frame.finished.stream_id)
            if buffer is not None:
                buffer.put(frame.finished)
        elif kind == "failed":
            buffer = self._forget(frame.failed.stream_id)
            if buffer is not None:
                buffer.put(frame.failed)

    def _forget(self, stream_id: int) -> EventBuffer | None:
        buffer = self._streams.pop(stream_id, None)
        if buffer is not None:
            WORKER_STREAMS.dec()
        return buffer
