"""One Run stream: the work that one frontend has given to this worker."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.telemetry.logs import get_logger
from baton.worker.core import WorkerCore
from baton.worker.stream import WorkStream, failed_frame

# Frames that may wait for a frontend to read them. A frontend that is further behind is cut: its
# clients are served elsewhere, and the engine never waits for it.
MAX_FRAMES = 8192
# Frames in one message: a frontend that is behind catches up at a lower cost per frame.
MAX_FRAMES_PER_MESSAGE = 64

log = get_logger(__name__)


class RunSession:
    """Reads a frontend's frames, and keeps what it shall be sent."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._streams: dict[int, WorkStream] = {}
        self._out: deque[worker_pb2.FrameFromWorker] = deque()
        self._step: worker_pb2.EngineStep | None = None
        self._wake = asyncio.Event()
        self._cut = False
        self._over = False

    # Frames in.

    async def read(self, requests: AsyncIterator[worker_pb2.RunRequest]) -> None:
        """Handle frames until the frontend closes its side or the stream breaks."""
        try:
            async for request in requests:
                if self._over:
                    return
                for frame in request.frames:
                    self._handle(frame)
        finally:
            self.cancel()

    def _handle(self, frame: worker_pb2.FrameToWorker) -> None:
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
                log.warning("run.unknown_frame")

    def _start(self, start: worker_pb2.Start) -> None:
        try:
            if start.stream_id in self._streams:
                taken = f"stream_id {start.stream_id} is in use"
                raise BatonError(Reason.INVALID_FIELD, taken, field="stream_id")
            self._streams[start.stream_id] = self._core.open(start, self, self._ended)
        except BatonError as error:
            self.send(failed_frame(start.stream_id, error))

    def _ended(self, stream: WorkStream) -> None:
        self._core.closed(stream)
        self._streams.pop(stream.stream_id, None)

    # Frames out.

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        """Queue a frame behind the tokens that came before it."""
        self.flush()
        self._push(frame)

    def add_tokens(self, tokens: worker_pb2.StreamTokens) -> None:
        """Add tokens to the message of the engine step that is being delivered."""
        if self._step is None:
            self._step = worker_pb2.EngineStep()
            self._core.flush_after_step(self)
        self._step.streams.append(tokens)

    def flush(self) -> None:
        if self._step is not None:
            step, self._step = self._step, None
            self._push(worker_pb2.FrameFromWorker(step=step))

    def _push(self, frame: worker_pb2.FrameFromWorker) -> None:
        self._cut = self._cut or len(self._out) >= MAX_FRAMES
        if not self._cut:
            self._out.append(frame)
        self._wake.set()

    async def messages(self) -> AsyncIterator[worker_pb2.RunResponse]:
        """What the frontend shall be sent, until it closes its side or is cut for reading slowly.

        Raises:
            BatonError: SLOW_CONSUMER.
        """
        while True:
            while self._out:
                count = min(len(self._out), MAX_FRAMES_PER_MESSAGE)
                frames = [self._out.popleft() for _ in range(count)]
                yield worker_pb2.RunResponse(frames=frames)
            if self._cut:
                behind = f"{MAX_FRAMES} frames were not read"
                raise BatonError(Reason.SLOW_CONSUMER, behind)
            if self._over:
                return
            self._wake.clear()
            await self._wake.wait()

    def cancel(self) -> None:
        """Take no more frames and cancel what is open; each stream gives back what it holds.

        Does not wait, so that nothing can keep it from being done: a call that is cancelled while
        its handler writes may leave the handler in that write.
        """
        self._over = True
        self._wake.set()
        for stream in list(self._streams.values()):
            stream.cancel()

    async def wait_closed(self) -> None:
        """Return when every stream has given everything back; after `cancel`."""
        for stream in list(self._streams.values()):
            await stream.wait_closed()
