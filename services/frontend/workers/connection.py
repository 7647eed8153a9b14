"""The connection to one worker: one Run call that carries many numbered streams."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2, worker_pb2, worker_pb2_grpc
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.settings import WorkerConnectionSettings
from services.frontend.metrics import LATE_FRAMES, WORKER_STREAMS
from services.frontend.workers.event_buffer import EventBuffer, StreamLost

MAX_FRAMES_PER_MESSAGE = 64
MAX_TOKENS_PER_MESSAGE = 65536
"""Of all frames in a message but the first; 5 bytes each, of the 4 MiB that a server reads."""


class ConnectionLostError(Exception):
    """The connection is closed; its worker may be gone."""


class WorkerConnection:
    """One Run call. Owned by `WorkerPool`; lives on the event loop.

    Frames go out in the order in which they were given; those queued while a message is written
    leave together in the next one. A worker that lets the bounded queue fill up, or takes longer
    than `write_seconds` for a message, counts as lost. Stream ids are never used twice, so a frame
    of a released stream finds no buffer.
    """

    def __init__(
        self,
        target: router_pb2.Target,
        channel: grpc.aio.Channel,
        stream_ids: "itertools.count[int]",
        on_lost: Callable[["WorkerConnection", BatonError], None],
        settings: WorkerConnectionSettings,
    ) -> None:
        self.target = target
        self._stream_ids = stream_ids
        self._on_lost = on_lost
        self._buffers: dict[int, EventBuffer] = {}
        """By stream id, of the open streams."""
        self._call: ClientStream[worker_pb2.FrameToWorker, worker_pb2.RunResponse] = ClientStream(
            worker_pb2_grpc.WorkerServiceStub(channel).Run(),  # type: ignore[call-arg]  # the stub wants an iterator, grpc.aio does not
            SendQueue(_pack, limit=settings.max_queued),
            settings.write_seconds,
        )
        self._call.send(worker_pb2.FrameToWorker(hello=hello()))
        self._greeted = False
        self._call.start_reader(self.receive, self._closed)

    def start(self, start: worker_pb2.Start, buffer: EventBuffer) -> int:
        """Start a stream and return its id, which `start.stream_id` is set to.

        Its events go to `buffer`.

        Raises:
            ConnectionLostError: the connection is closed; nothing was started.
        """
        if self._call.closed:
            raise ConnectionLostError
        stream_id = start.stream_id = next(self._stream_ids)
        if not self._buffers:
            self._call.last_received_at = asyncio.get_running_loop().time()
        self._buffers[stream_id] = buffer
        WORKER_STREAMS.inc()
        self._call.send(worker_pb2.FrameToWorker(start=start))
        return stream_id

    def send(self, frame: worker_pb2.FrameToWorker) -> None:
        """Send a frame about a stream; ignored once the connection is closed."""
        self._call.send(frame)

    def release(self, stream_id: int) -> None:
        """Cancel a stream unless it has ended; its events are dropped from now on."""
        if self._forget(stream_id) is not None:
            self.send(worker_pb2.FrameToWorker(cancel=worker_pb2.Cancel(stream_id=stream_id)))

    def is_silent(self, seconds: float) -> bool:
        """Return whether streams are open and nothing came for so long; then count from now on."""
        now = asyncio.get_running_loop().time()
        silent = bool(self._buffers) and now - self._call.last_received_at > seconds
        if silent:
            self._call.last_received_at = now
        return silent

    def close(self, reason: str) -> None:
        """End the call and put StreamLost into the buffer of every open stream. Idempotent."""
        self._call.close(BatonError(Reason.CANCELLED, reason))

    async def wait_closed(self) -> None:
        """Return when the connection's tasks have ended; after `close`."""
        await self._call.wait_closed()

    def _closed(self, error: BatonError) -> None:
        buffers, self._buffers = self._buffers, {}
        WORKER_STREAMS.dec(len(buffers))
        self._on_lost(self, error)
        for stream_id, buffer in buffers.items():
            buffer.put(StreamLost(stream_id))

    def receive(self, response: worker_pb2.RunResponse) -> None:
        """Pass the frames of a message on to the buffers of their streams.

        Raises:
            BatonError: PROTOCOL_MISMATCH.
        """
        if not self._greeted:
            self._greeted = True
            check_hello(response.frames, self.target.instance_id)
        for frame in response.frames:
            kind = frame.WhichOneof("frame")
            if kind == "step":
                buffers = self._buffers
                for entry in frame.step.streams:
                    stream_id = entry.stream_id
                    buffer = buffers.get(stream_id)
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
                buffer = self._buffers.get(frame.prepared.stream_id)
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
        buffer = self._buffers.pop(stream_id, None)
        if buffer is not None:
            WORKER_STREAMS.dec()
        return buffer


def _pack(frames: deque[worker_pb2.FrameToWorker]) -> worker_pb2.RunRequest:
    """Return the next message: as many queued frames as fit, at least one."""
    packed, tokens = [frames.popleft()], 0
    while frames and len(packed) < MAX_FRAMES_PER_MESSAGE:
        start, generate = frames[0].start, frames[0].generate
        tokens += len(start.prompt_token_ids) + len(start.generate.output_so_far)
        tokens += len(generate.output_so_far)
        if tokens > MAX_TOKENS_PER_MESSAGE:
            break
        packed.append(frames.popleft())
    return worker_pb2.RunRequest(frames=packed)
