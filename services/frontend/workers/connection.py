"""The connection to one worker: one Run call that carries many numbered streams."""

import itertools
from collections import deque
from collections.abc import Callable

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2, worker_pb2, worker_pb2_grpc
from baton.rpc.channel.channel import Channel
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.settings import WorkerConnectionSettings
from baton.worker.wire.step_tokens import tokens_of
from services.frontend.metrics import LATE_FRAMES, WORKER_STREAMS
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import StreamLost

MAX_FRAMES_PER_MESSAGE = 64
MAX_TOKENS_PER_MESSAGE = 65536
"""Over all frames in a message after the first; 5 bytes each, of the server's limit of 4 MiB."""


class ConnectionLostError(Exception):
    """The connection is closed; its worker may be gone."""


class WorkerConnection:
    """One Run call. Owned by `WorkerPool`; lives on the event loop.

    Frames are sent in order; those queued while a message is written leave together in the next
    one. A worker that lets the bounded queue fill up, or takes longer than `write_seconds` for a
    message, counts as lost. Stream ids are never reused, so a frame of a released stream finds no
    buffer.
    """

    def __init__(
        self,
        target: router_pb2.Target,
        channel: Channel,
        stream_ids: "itertools.count[int]",
        on_ready: Callable[["WorkerConnection"], None],
        on_leaving: Callable[["WorkerConnection"], None],
        on_lost: Callable[["WorkerConnection", BatonError], None],
        settings: WorkerConnectionSettings,
    ) -> None:
        self.target = target
        self.ready = False
        """Whether the worker answered, and speaks the same protocol."""
        self.can_pause = False
        """Whether the worker is known to support Pause and Resume."""
        self._on_ready = on_ready
        self._on_leaving = on_leaving
        self._stream_ids = stream_ids
        self._on_lost = on_lost
        self._buffers: dict[int, EventBuffer] = {}
        """Buffers of the open streams, by stream id."""
        stub = channel.stub(worker_pb2_grpc.WorkerServiceStub)
        self._call: ClientStream[worker_pb2.FrameToWorker, worker_pb2.RunResponse] = ClientStream(
            stub.Run(),
            SendQueue(_pack, limit=settings.max_queued),
            settings.write_seconds,
        )
        self._call.send(worker_pb2.FrameToWorker(hello=hello()))
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

    def close(self, reason: str) -> None:
        """End the call and put StreamLost into the buffer of every open stream. Idempotent."""
        self._call.close(BatonError(Reason.CANCELLED, reason))

    async def wait_closed(self) -> None:
        """Return when the connection's tasks have ended; after `close`."""
        await self._call.wait_closed()

    def _closed(self, error: BatonError) -> None:
        self.ready = False
        buffers, self._buffers = self._buffers, {}
        WORKER_STREAMS.dec(len(buffers))
        self._on_lost(self, error)
        for stream_id, buffer in buffers.items():
            buffer.put(StreamLost(stream_id))

    def receive(self, response: worker_pb2.RunResponse) -> None:
        """Dispatch the frames of a message to the buffers of their streams.

        Raises:
            BatonError: PROTOCOL_MISMATCH.
        """
        if not self.ready:
            check_hello(response.frames, self.target.instance_id)
            self.ready = True
            self._on_ready(self)
        for frame in response.frames:
            kind = frame.WhichOneof("frame")
            if kind == "step":
                buffer_of = self._buffers.get
                for stream_id, choice, position, token_ids, logprobs in tokens_of(frame.step):
                    buffer = buffer_of(stream_id)
                    if buffer is None:
                        LATE_FRAMES.inc()
                    else:
                        buffer.put_tokens(stream_id, choice, position, token_ids, logprobs)
            elif kind == "prepared":
                buffer = self._buffers.get(frame.prepared.stream_id)
                if buffer is not None:
                    buffer.put(frame.prepared)
            elif kind == "prompt_logprobs":
                buffer = self._buffers.get(frame.prompt_logprobs.stream_id)
                if buffer is not None:
                    buffer.put(frame.prompt_logprobs)
            elif kind == "begun":
                buffer = self._buffers.get(frame.begun.stream_id)
                if buffer is not None:
                    buffer.put(frame.begun)
            elif kind == "finished":
                buffer = self._forget(frame.finished.stream_id)
                if buffer is not None:
                    buffer.put(frame.finished)
            elif kind == "failed":
                buffer = self._forget(frame.failed.stream_id)
                if buffer is not None:
                    buffer.put(frame.failed)
            elif kind == "handed_over":
                self._on_leaving(self)  # before its streams are placed again
                buffer = self._forget(frame.handed_over.stream_id)
                if buffer is not None:
                    buffer.put(frame.handed_over)

    def _forget(self, stream_id: int) -> EventBuffer | None:
        buffer = self._buffers.pop(stream_id, None)
        if buffer is not None:
            WORKER_STREAMS.dec()
        return buffer


def _pack(frames: deque[worker_pb2.FrameToWorker]) -> worker_pb2.RunRequest:
    """Return the next message: as many queued frames as fit, at least one. A frame with pictures
    travels alone.
    """
    packed, tokens = [frames.popleft()], 0
    if packed[0].start.pictures:
        return worker_pb2.RunRequest(frames=packed)
    while frames and len(packed) < MAX_FRAMES_PER_MESSAGE:
        start, generate = frames[0].start, frames[0].generate
        if start.pictures:
            break
        tokens += len(start.prompt_token_ids) + len(start.generate.output_so_far)
        tokens += len(generate.output_so_far)
        if tokens > MAX_TOKENS_PER_MESSAGE:
            break
        packed.append(frames.popleft())
    return worker_pb2.RunRequest(frames=packed)
