"""One stream of a worker connection, from Start to its end."""

from collections.abc import Sequence
from enum import Enum

from opentelemetry.trace import Span, StatusCode

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2, worker_pb2
from baton.request.limits import PROVEN_TOKENS
from services.frontend.workers.connection import WorkerConnection
from services.frontend.workers.ticket_use import TicketUse


class Phase(Enum):
    """What a worker does on a stream."""

    PREFILL = "prefill"
    DECODE = "decode"


class WorkerStreamState(Enum):
    """The state of an open stream."""

    PREPARED = "prepared"
    """A decode stream after Prepare: it fetches KV, and waits for Generate."""
    RUNNING = "running"
    """It computes, or fetches KV to do so."""
    ENDING = "ending"
    """It produced the last token of its choice, and ends by itself."""


class WorkerStream:
    """The state of a prefill or decode stream, and the frames that concern it.

    Owned by one request's `WorkerAssignments`, which opens it; lives on the event loop. Times are
    monotonic, in seconds.
    """

    stream_id: int
    """Set once it is open."""
    error: BatonError
    """Set once it failed."""

    def __init__(
        self,
        phase: Phase,
        choice: int,
        connection: WorkerConnection,
        start: worker_pb2.Start,
        span: Span,
        now: float,
    ) -> None:
        """Describe the stream that a frame starts.

        Args:
            phase: what the worker does.
            choice: which choice it decodes; 0 for prefill, which serves all.
            connection: the worker.
            start: the frame, complete except for its stream_id.
            span: covers the stream; ended by the code that removes the stream.
            now: the time.
        """
        prepare = start.HasField("prepare")
        self.phase = phase
        self.choice = choice
        self.connection = connection
        self.span = span
        self.instance = connection.target.instance_id
        self.state = WorkerStreamState.PREPARED if prepare else WorkerStreamState.RUNNING
        self.awaits_kv = prepare or start.generate.wait_for_kv
        """Whether it may be waiting for KV that a prefill stream computes."""
        self.computes_prompt = start.HasField("generate") and not start.generate.output_so_far
        """Whether it is a decode stream that produces the first token, without prefill."""
        self.suspect = start.suspect
        self.begun = False
        """Whether the engine has received it; reported for suspects only."""
        self.begun_at = now
        self.first_at: float | None = None
        """Time of its first token."""
        self.tokens = 0
        """Tokens that it produced and no other stream had produced before."""
        self.prefilled = prepare or start.generate.wait_for_kv
        """Whether it is a decode stream whose prompt another worker computes."""
        self.use = TicketUse()
        """The use of its placement."""
        self.exact_continuation = True
        """Whether its worker samples as others of its kind do."""
        self.cached_tokens: int | None = None
        """Prompt tokens whose KV it found, once reported."""
        self.kv_wait_seconds = 0.0
        """Seconds that it waited for KV from stores, once reported."""

    @property
    def computing(self) -> bool:
        """Whether its worker may be computing it, as far as is known here."""
        if self.phase is Phase.PREFILL:
            return self.first_at is None
        return self.state is WorkerStreamState.RUNNING and not self.awaits_kv

    @property
    def unproven(self) -> bool:
        """Whether it is suspect, and reached the engine at most a moment ago."""
        enough = 1 if self.phase is Phase.PREFILL else PROVEN_TOKENS
        return self.suspect and self.begun and self.tokens < enough

    def generate(self, output_so_far: Sequence[int], now: float) -> None:
        """Let a prepared stream decode."""
        self.state = WorkerStreamState.RUNNING
        self.begun_at = now
        frame = worker_pb2.Generate(stream_id=self.stream_id, output_so_far=output_so_far)
        self.connection.send(worker_pb2.FrameToWorker(generate=frame))

    def update_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        """Tell a stream that waits for KV which stores may come to hold it."""
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, sources=sources)
        self.connection.send(worker_pb2.FrameToWorker(update_sources=frame))

    def prefill_done(self) -> None:
        """Tell a stream that waits for KV that no more will arrive."""
        self.awaits_kv = False
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, prefill_done=True)
        self.connection.send(worker_pb2.FrameToWorker(update_sources=frame))

    def note_begun(self, begun: worker_pb2.Begun) -> None:
        """Record that the engine receives it, and let a worker continue that waits for that."""
        self.begun = True
        if begun.awaits_acknowledgement:
            frame = worker_pb2.AcknowledgeBegun(stream_id=self.stream_id)
            self.connection.send(worker_pb2.FrameToWorker(acknowledge_begun=frame))

    def pause(self) -> None:
        """Pause its worker's tokens until `resume`, if it decodes and the worker supports it."""
        if self.phase is Phase.DECODE and self.connection.can_pause:
            frame = worker_pb2.Pause(stream_id=self.stream_id)
            self.connection.send(worker_pb2.FrameToWorker(pause=frame))

    def resume(self) -> None:
        """Resume it, if it was paused."""
        if self.phase is Phase.DECODE and self.connection.can_pause:
            frame = worker_pb2.Resume(stream_id=self.stream_id)
            self.connection.send(worker_pb2.FrameToWorker(resume=frame))

    def fail(self, error: BatonError) -> None:
        """Record why it failed, here and on its span."""
        self.error = error
        self.span.set_attribute("error.type", error.reason.name)
        self.span.set_status(StatusCode.ERROR)

    def release(self) -> None:
        """Cancel it; no error if it has ended."""
        self.connection.release(self.stream_id)
