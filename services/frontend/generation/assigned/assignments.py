"""The worker streams of one request, and the frames that start them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from opentelemetry import trace

from baton.errors import BatonError
from baton.internal.v1 import router_pb2, worker_pb2
from baton.telemetry.tracing import RequestTrace
from baton.v1 import common_pb2
from services.frontend.generation.assigned.pauses import RequestPauses
from services.frontend.generation.assigned.suspects import Suspects, poison_request
from services.frontend.generation.state.actions import (
    PrefillDone,
    Release,
    SendGenerate,
    StartDecode,
    StartPrefill,
    StreamAction,
    UpdateSources,
)
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.generation.state.reconcile import worker_lost
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.metrics import HANDED_BACK, HANDED_OVER
from services.frontend.placement.placement import Placement, PlacementFinder
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.claims import RequestClaim
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.connection import ConnectionLostError
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import WorkerProbed
from services.frontend.workers.stream import Phase, WorkerStream
from services.frontend.workers.workers import Workers


@dataclass(frozen=True, slots=True)
class GenerationContext:
    """What a request needs to find and reach workers. Times are monotonic, in seconds."""

    pool: Workers
    placement_finder: PlacementFinder
    waiting: WorkerWaitQueue
    """Queue that it waits in while no worker is available."""
    suspects: Suspects
    """Tracks requests that may have crashed workers."""
    suspect: bool
    """Whether this request is suspect."""
    claim: RequestClaim | None
    """Its claim on an execution id; None: its id is new."""
    block_key_chains: Sequence[router_pb2.Chain]
    cache_salt: bytes
    trace: RequestTrace
    arrived: float
    """When the request arrived."""
    deadline: float
    """When it fails unless it has ended."""
    max_placements: int
    """Most placements, including the first one."""
    report_seconds: float
    """Seconds after the last token for workers to end by themselves and report usage."""
    buffer_bytes: int
    """Most bytes of output that wait for the client."""
    max_wait: float | None = None
    """The longest predicted wait for a worker, in seconds, until there is output; None: as long as
    for any request."""


class WorkerAssignments:
    """The streams of one request: at most one prefill, and one decode stream per choice.

    Owned by its `Generation`. Every change here is requested by `reconcile` or reported by a
    worker.
    """

    def __init__(
        self,
        request: ResolvedRequest,
        outputs: Sequence[ChoiceOutput],
        context: GenerationContext,
        buffer: EventBuffer,
        usage: RequestUsage,
    ) -> None:
        self.open: dict[int, WorkerStream] = {}
        """Open streams by stream id."""
        self.failed: list[WorkerStream] = []
        """Failed streams, oldest first. A few between two tokens, bounded by `max_placements`."""
        self.handed_back = 0
        """Streams for which a worker had no space. They are not failures: the request waits a
        moment, and is placed again."""
        self.handed_over: list[WorkerStream] = []
        """Streams that a stopping worker left to another one."""
        self.pauses = RequestPauses(self.open)
        """Pauses of the streams while its client reads slowly."""
        self.find: Callable[[int], WorkerStream | None] = self.open.get
        """Return an open stream by its id; None: there is none."""
        self._request = request
        self._outputs = outputs
        self._context = context
        self._buffer = buffer
        self._usage = usage
        self._suspect = context.suspect
        """Whether a worker was lost while it computed the request."""

    def carry_out(self, action: StreamAction) -> None:
        """Carry out an action on one stream. One that cannot be started is added to `failed`."""
        match action:
            case StartPrefill():
                self._start_prefill(action.placement)
            case StartDecode():
                self._start_decode(action)
            case SendGenerate():
                stream = action.stream
                stream.generate(self._outputs[stream.choice].token_ids, monotonic())
            case UpdateSources():
                action.stream.update_sources(action.sources)
            case PrefillDone():
                action.stream.prefill_done()
            case Release():
                self.release(action.stream)

    def ended(self, stream: WorkerStream, usage: common_pb2.Usage | None = None) -> None:
        """Remove a stream that ended, with the usage reported by its worker, if any."""
        if self.open.pop(stream.stream_id, None) is not None:
            stream.span.end()
            _count_use(stream, usage, len(self._request.prompt))
            self._usage.add_stream(stream, usage, monotonic())

    def lost(self, stream: WorkerStream, error: BatonError) -> None:
        """Remove a stream that failed, and keep it in `failed`."""
        stream.fail(error)
        self.ended(stream)
        self.failed.append(stream)

    def hand_back(self, stream: WorkerStream, error: BatonError) -> None:
        """Remove a stream for which its worker had no space."""
        HANDED_BACK.inc()
        stream.fail(error)
        self.ended(stream)
        self.handed_back += 1

    def hand_over(self, stream: WorkerStream) -> None:
        """Remove a stream that continues on another worker."""
        HANDED_OVER.inc()
        self.ended(stream)
        self.handed_over.append(stream)

    def lost_connection(self, stream: WorkerStream) -> None:
        """Handle a broken connection of a stream: its worker may have crashed on this request.

        A stream that was the only suspect there stays until it is known whether the worker died:
        the cause may be the network.
        """
        if stream.unproven:
            tell = partial(self._worker_probed, stream.stream_id)
            self._context.pool.find_out_if_died(stream.connection.target, tell)
        else:
            self.lost_worker(stream, worker_lost())

    def lost_worker(self, stream: WorkerStream, error: BatonError) -> None:
        """Remove a stream whose worker was lost, possibly because of this request.

        If it was the only suspect there, the request is the cause: then `error` is not why it
        failed.
        """
        suspects = self._context.suspects
        if stream.unproven:
            suspects.refuse(self._request, stream.instance)
            error = poison_request()
        elif stream.computing and not self._suspect:
            self._suspect = True
            suspects.suspect(self._request)
        self.lost(stream, error)

    def proven(self, stream: WorkerStream) -> None:
        """Record that a stream finished. A suspect request is cleared if a worker computed it."""
        if stream.suspect:
            self._suspect = False
            self._context.suspects.clear(self._request)

    def release(self, stream: WorkerStream) -> None:
        """Cancel a stream and remove it."""
        stream.release()
        self.ended(stream)

    def release_all(self) -> None:
        """Cancel every open stream."""
        for stream in list(self.open.values()):
            self.release(stream)
        self.pauses.end()

    def _worker_probed(self, stream_id: int, died: bool) -> None:
        self._buffer.put(WorkerProbed(stream_id, died))

    def _start_prefill(self, placement: Placement) -> None:
        start = self._frame(placement, 0)
        start.prefill.n = self._request.n
        start.prefill.sources.extend(placement.decision.sources)
        start.expected_cached_tokens = placement.decision.prediction.cached_tokens
        self._score_prompt(start)
        self._start(Phase.PREFILL, 0, placement, placement.decision.prefill, start, True)

    def _start_decode(self, action: StartDecode) -> None:
        decision, choice = action.placement.decision, action.choice
        start = self._frame(action.placement, choice)
        if action.prepare:
            start.prepare.sources.extend(decision.sources)
            start.prepare.SetInParent()
        else:
            start.generate.output_so_far.extend(self._outputs[choice].token_ids)
            start.generate.sources.extend(decision.sources)
            start.generate.wait_for_kv = action.wait_for_kv
            start.generate.SetInParent()
        if decision.HasField("prefill"):
            # All of the KV, from the prefill worker.
            start.expected_cached_tokens = len(self._request.prompt)
        else:
            start.expected_cached_tokens = decision.prediction.cached_tokens
            if choice == 0 and not self._outputs[0].token_ids:
                self._score_prompt(start)
        exact = action.placement.exact_continuation
        self._start(Phase.DECODE, choice, action.placement, decision.decode, start, exact)

    def _score_prompt(self, start: worker_pb2.Start) -> None:
        """Request the prompt's log probabilities, if the request asks for them."""
        if self._request.prompt_logprobs is not None:
            start.prompt_logprobs = self._request.prompt_logprobs
            start.expected_cached_tokens = 0

    def _frame(self, placement: Placement, choice: int) -> worker_pb2.Start:
        request, context = self._request, self._context
        start = worker_pb2.Start(
            context=request.context,
            choice=choice,
            cache_salt=context.cache_salt,
            adapter_digest=request.adapter_digest,
            ticket="" if placement.ticket is None else placement.ticket.name,
            prompt_token_ids=request.prompt,
            sampling=request.sampling,
            suspect=self._suspect,
            acknowledges_begun=self._suspect,
        )
        for run, data in zip(*request.pictures, strict=True):
            start.pictures.add(offset=run.offset, data=data)
        if placement.decision.HasField("order"):
            start.order.CopyFrom(placement.decision.order)
        start.context.attempt = placement.attempt
        left = max(0.001, context.deadline - monotonic())
        start.timeout.FromNanoseconds(int(left * 1e9))
        return start

    def _start(
        self,
        phase: Phase,
        choice: int,
        placement: Placement,
        target: router_pb2.Target,
        start: worker_pb2.Start,
        exact_continuation: bool,
    ) -> None:
        connection = self._context.pool.get(target)
        span = self._start_span(phase, choice, target, start)
        stream = WorkerStream(phase, choice, connection, start, span, monotonic())
        stream.exact_continuation, stream.use = exact_continuation, placement.use
        try:
            stream.stream_id = connection.start(start, self._buffer)
        except ConnectionLostError:
            stream.fail(worker_lost())
            span.end()
            self.failed.append(stream)
        else:
            self.open[stream.stream_id] = stream
            self.pauses.started(stream)

    def _start_span(
        self, phase: Phase, choice: int, target: router_pb2.Target, start: worker_pb2.Start
    ) -> trace.Span:
        """Start the span of a stream, and name it in the stream's frame as the worker's parent."""
        span, start.traceparent = self._context.trace.child(phase.value, trace.SpanKind.CLIENT)
        if span.is_recording():
            span.set_attribute("baton.instance", target.instance_id)
            span.set_attribute("baton.choice", choice)
        return span


def _count_use(stream: WorkerStream, usage: common_pb2.Usage | None, prompt_tokens: int) -> None:
    """Count the use of an ended stream for its placement.

    Args:
        stream: the stream.
        usage: reported by its worker, if it could.
        prompt_tokens: tokens of the prompt.
    """
    stream.use.add_output(stream.tokens)
    if usage is not None:
        stream.use.add_prompt(max(0, usage.prompt_tokens - usage.cached_tokens))
    elif stream.phase is Phase.DECODE and stream.prefilled:
        stream.use.add_prompt(0)
    elif stream.first_at is not None and stream.cached_tokens is not None:
        stream.use.add_prompt(max(0, prompt_tokens - stream.cached_tokens))
    else:
        stream.use.add_prompt(None)
