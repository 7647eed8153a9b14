"""One Run stream: the work that one frontend has given to this worker."""

from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from baton.errors import BatonError, invalid_field
from baton.internal.v1 import worker_pb2
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.telemetry.logs import get_logger
from baton.worker.convert import failed_frame
from baton.worker.core import WorkerCore
from baton.worker.stream import WorkStream

MAX_FRAMES_PER_MESSAGE = 64
"""A frontend that is behind catches up at a lower cost per frame."""

log = get_logger(__name__)


class RunSession:
    """One frontend's Run call: dispatches its frames to streams, and queues theirs for it.

    Owned by the call's handler, on the asyncio loop. What it queues is bounded: a frontend that is
    further behind is cut, its clients are served elsewhere, and the engine never waits for it. The
    call's end, however it comes, cancels every stream that it opened.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._streams: dict[int, WorkStream] = {}
        self._queue: SendQueue[worker_pb2.FrameFromWorker, worker_pb2.RunResponse]
        self._queue = SendQueue(_pack, limit=core.limits.max_frames)
        self._stream: ServerStream[worker_pb2.RunRequest] = ServerStream(
            self._queue, self._handle, self.cancel
        )
        self._step: worker_pb2.EngineStep | None = None
        self._greeted = False

    async def serve(self, requests: AsyncIterator[worker_pb2.RunRequest], context: Any) -> None:
        """Serve the call, and return once its streams hold nothing any more.

        Raises:
            BatonError: SLOW_CONSUMER, or PROTOCOL_MISMATCH.
        """
        try:
            await self._stream.serve(requests, context)
        finally:
            await self.wait_closed()

    def cancel(self) -> None:
        """Cancel every open stream without waiting for it: each releases what it holds."""
        for stream in list(self._streams.values()):
            stream.cancel()

    async def wait_closed(self) -> None:
        """Return once every stream has released what it held; after `cancel`."""
        for stream in list(self._streams.values()):
            await stream.wait_closed()

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        """Queue a frame behind the tokens that came before it."""
        self.flush()
        self._queue.put(frame)

    def add_tokens(self, tokens: worker_pb2.StreamTokens) -> None:
        """Add tokens to the message of the engine step that is being delivered."""
        if self._step is None:
            self._step = worker_pb2.EngineStep()
            self._core.flush_after_step(self)
        self._step.streams.append(tokens)

    def flush(self) -> None:
        """Queue the tokens of the present engine step."""
        if self._step is not None:
            step, self._step = self._step, None
            self._queue.put(worker_pb2.FrameFromWorker(step=step))

    def _handle(self, request: worker_pb2.RunRequest) -> None:
        if not self._greeted:
            self._greeted = True
            check_hello(request.frames, "the frontend")
            self._queue.put(worker_pb2.FrameFromWorker(hello=hello()))
        for frame in request.frames:
            self._handle_frame(frame)

    def _handle_frame(self, frame: worker_pb2.FrameToWorker) -> None:
        match frame.WhichOneof("frame"):
            case "start":
                self._start(frame.start)
            case "generate":
                if stream := self._streams.get(frame.generate.stream_id):
                    stream.generate(frame.generate)
            case "update_sources":
                if stream := self._streams.get(frame.update_sources.stream_id):
                    stream.update_sources(frame.update_sources)
            case "cancel":
                if stream := self._streams.get(frame.cancel.stream_id):
                    stream.cancel()
            case None:
                log.warning("worker.frame.unknown")

    def _start(self, start: worker_pb2.Start) -> None:
        try:
            if start.stream_id in self._streams:
                raise invalid_field("stream_id", f"{start.stream_id} is in use")
            self._streams[start.stream_id] = self._core.open(start, self, self._on_ended)
        except BatonError as error:
            self.send(failed_frame(start.stream_id, error))

    def _on_ended(self, stream: WorkStream) -> None:
        self._core.remove(stream)
        self._streams.pop(stream.stream_id, None)


def _pack(frames: deque[worker_pb2.FrameFromWorker]) -> worker_pb2.RunResponse:
    count = min(len(frames), MAX_FRAMES_PER_MESSAGE)
    return worker_pb2.RunResponse(frames=[frames.popleft() for _ in range(count)])
