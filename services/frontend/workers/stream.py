"""One stream of a worker connection, from Start to its end."""

from collections.abc import Sequence
from enum import Enum

from baton.internal.v1 import kvstore_pb2, worker_pb2
from services.frontend.workers.connection import WorkerConnection
from services.frontend.workers.event_buffer import EventBuffer


class Phase(Enum):
    """What a worker does on a stream."""

    PREFILL = "prefill"
    DECODE = "decode"


class WorkerStream:
    """A prefill or decode stream of one request; `release` frees what the worker holds for it."""

    def __init__(
        self,
        phase: Phase,
        choice: int,
        connection: WorkerConnection,
        start: worker_pb2.Start,
        buffer: EventBuffer,
        now: float,
    ) -> None:
        """Start it.

        Args:
            phase: what the worker does.
            choice: which choice it decodes; 0 for prefill, which serves all.
            connection: the worker.
            start: the frame, whole but for its stream_id.
            buffer: where its events go.
            now: monotonic time in seconds.

        Raises:
            ConnectionLostError: the connection broke; nothing was started.
        """
        self.phase = phase
        self.choice = choice
        self.connection = connection
        self.instance = connection.target.instance_id
        self.waits = start.HasField("prepare")
        """It is prepared and waits for Generate."""
        self.fresh = start.HasField("generate") and not start.generate.output_so_far
        """It decodes from the first token on, and computes the prompt itself."""
        self.prepared = False
        """The prompt's KV is in place as far as it will come."""
        self.begun_at = now
        self.first_at: float | None = None
        """When its first token came."""
        self.tokens = 0
        """Tokens that it gave and no other stream had given before."""
        self.cached_tokens: int | None = None
        self.stream_id = connection.start(start, buffer)

    def generate(self, output_so_far: Sequence[int], now: float) -> None:
        """Let a prepared stream decode."""
        self.waits = False
        self.begun_at = now
        frame = worker_pb2.Generate(stream_id=self.stream_id, output_so_far=output_so_far)
        self.connection.send(worker_pb2.FrameToWorker(generate=frame))

    def update_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        """Tell a stream that waits for KV which stores may come to hold it."""
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, sources=sources)
        self.connection.send(worker_pb2.FrameToWorker(update_sources=frame))

    def prefill_done(self) -> None:
        """Tell a stream that waits for KV that no more will come than is there."""
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, prefill_done=True)
        self.connection.send(worker_pb2.FrameToWorker(update_sources=frame))

    def release(self) -> None:
        """Cancel it; no error if it has ended."""
        self.connection.release(self.stream_id)
