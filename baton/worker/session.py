"""One Run stream: the work that one frontend has sent to this worker."""

from collections import deque

from baton.engine.events import SampledTokens
from baton.errors import BatonError, invalid_field
from baton.internal.v1 import worker_pb2
from baton.rpc.protocol import check_hello, hello
from baton.rpc.server.call import ServerCall
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.telemetry.logs import get_logger
from baton.worker.convert import failed_frame, handed_over_frame
from baton.worker.core import WorkerCore
from baton.worker.stream.stream import WorkStream
from baton.worker.wire.step_tokens import StepTokens

HANDOVER_SINCE = 2
"""First version of the protocol that supports handover."""
MAX_FRAMES_PER_MESSAGE = 64
"""Batching limit, with which a frontend that lags catches up at a lower cost per frame."""

log = get_logger(__name__)


class RunSession:
    """One frontend's Run call: dispatches its frames to streams, and queues their frames for it.

    Owned by the call's handler, on the asyncio loop. Its queue is bounded: the call of a frontend
    that lags further is closed, its clients are served elsewhere, and the engine never waits for
    it. However the call ends, every stream that it opened is cancelled.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._streams: dict[int, WorkStream] = {}
        self._queue: SendQueue[worker_pb2.FrameFromWorker, worker_pb2.RunResponse]
        self._queue = SendQueue(_pack, limit=core.limits.max_frames)
        self._stream: ServerStream[worker_pb2.RunRequest] = ServerStream(
            self._queue, self._handle, self.cancel
        )
        self._step = StepTokens()
        self._peer_version = 0
        """Version of the frontend's protocol; 0 until its Hello."""

    async def serve(self, call: ServerCall) -> None:
        """Serve the call, and return once its streams hold no resources.

        Raises:
            BatonError: SLOW_CONSUMER, or PROTOCOL_MISMATCH.
        """
        try:
            await self._stream.serve(call)
        finally:
            await self.wait_closed()

    def hand_over(self) -> None:
        """Hand over its streams to other workers; without support for it, they run to their end."""
        if self._peer_version >= HANDOVER_SINCE:
            for stream in list(self._streams.values()):
                stream.hand_over()

    def cancel(self) -> None:
        """Cancel every open stream without waiting for it; each releases its resources."""
        for stream in list(self._streams.values()):
            stream.cancel()

    async def wait_closed(self) -> None:
        """Return once every stream has released its resources; call after `cancel`."""
        for stream in list(self._streams.values()):
            await stream.wait_closed()

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        """Queue a frame after the tokens that precede it."""
        self.flush()
        self._queue.put(frame)

    def add_tokens(self, stream_id: int, tokens: SampledTokens) -> None:
        """Add tokens to the message of the engine step that is being delivered."""
        if not self._step:
            self._core.flush_after_step(self)
        self._step.add(stream_id, tokens)

    def flush(self) -> None:
        """Queue the tokens of the current engine step."""
        if self._step:
            step, self._step = self._step, StepTokens()
            self._queue.put(step.frame(self._peer_version))

    def _handle(self, request: worker_pb2.RunRequest) -> None:
        if not self._peer_version:
            self._peer_version = check_hello(request.frames, "the frontend")
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
            case "pause":
                if stream := self._streams.get(frame.pause.stream_id):
                    stream.pause()
            case "resume":
                if stream := self._streams.get(frame.resume.stream_id):
                    stream.resume()
            case "acknowledge_begun":
                if stream := self._streams.get(frame.acknowledge_begun.stream_id):
                    stream.begun_acknowledged()
            case None:
                log.warning("worker.frame.unknown")

    def _start(self, start: worker_pb2.Start) -> None:
        if self._core.draining and self._peer_version >= HANDOVER_SINCE:
            # It was in progress before the frontend knew: none of its streams failed.
            position = len(start.generate.output_so_far)
            self.send(handed_over_frame(start.stream_id, position))
            return
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
