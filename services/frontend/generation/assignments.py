"""The worker streams of one request, and the frames that start them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from opentelemetry.context import Context

from baton.internal.v1 import router_pb2, worker_pb2
from baton.v1 import common_pb2
from services.frontend.generation.output import Output
from services.frontend.generation.usage import RequestUsage
from services.frontend.placement.placement import Placement, PlacementFinder
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.connection import ConnectionLostError
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.pool import WorkerPool
from services.frontend.workers.stream import Phase, WorkerStream


@dataclass(frozen=True, slots=True)
class GenerationContext:
    """What a request needs to find and reach workers."""

    pool: WorkerPool
    places: PlacementFinder
    chains: Sequence[router_pb2.Chain]
    cache_salt: bytes
    context: Context
    """Trace context of the request's span."""
    traceparent: str
    """The same for other processes."""
    arrived: float
    """Monotonic time at which the request came."""
    deadline: float
    """Monotonic time at which it fails if it has not ended."""


class WorkerAssignments:
    """At most one prefill stream, which serves all choices, and one decode stream per choice."""

    def __init__(
        self,
        request: ResolvedRequest,
        outputs: Sequence[Output],
        route: GenerationContext,
        buffer: EventBuffer,
        usage: RequestUsage,
    ) -> None:
        self.prefill: WorkerStream | None = None
        self.decodes: dict[int, WorkerStream] = {}
        """By choice."""
        self._request = request
        self._outputs = outputs
        self._route = route
        self._buffer = buffer
        self._usage = usage
        self._streams: dict[int, WorkerStream] = {}

    def __bool__(self) -> bool:
        return bool(self._streams)

    def find(self, stream_id: int) -> WorkerStream | None:
        """Return a stream by its id; None once it is forgotten."""
        return self._streams.get(stream_id)

    def start(self, place: Placement, attempt: int) -> str | None:
        """Start what is missing: prefill if nobody gives first tokens, decode per choice.

        Answers None, or the instance id of a worker that was gone: then something still misses.
        """
        try:
            if self.needs_prefill():
                self._read_prompt(place, attempt)
            for output in self._live():
                if output.choice not in self.decodes:
                    self._write_answer(output, place, attempt)
        except ConnectionLostError as error:
            return error.instance_id
        return None

    def needs_prefill(self, without: WorkerStream | None = None) -> bool:
        """Whether a choice has no token and nobody is about to give it one.

        Args:
            without: a stream that does not count.
        """
        if self.prefill is not None and self.prefill is not without:
            return False
        for output in self._live():
            decode = self.decodes.get(output.choice)
            if not output.token_ids and (decode is None or decode.waits):
                return True
        return False

    def prefill_done(self) -> None:
        """Nobody writes the prompt's KV any more: who waits for it takes what there is."""
        for stream in self.decodes.values():
            if not stream.prepared:
                stream.prefill_done()

    def forget(self, stream: WorkerStream, usage: common_pb2.Usage | None = None) -> None:
        """Remove a stream that ended, with the usage that its worker reported, if it did."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        self._usage.ended(stream, usage, monotonic())
        if stream is self.prefill:
            self.prefill = None
        if self.decodes.get(stream.choice) is stream:
            del self.decodes[stream.choice]

    def drop(self, stream: WorkerStream) -> None:
        """Release a stream and remove it."""
        stream.release()
        self.forget(stream)

    def drop_all(self) -> None:
        for stream in list(self._streams.values()):
            self.drop(stream)

    def _live(self) -> Iterator[Output]:
        return (output for output in self._outputs if not output.ended)

    def _read_prompt(self, place: Placement, attempt: int) -> None:
        placement = place.placement
        waiting = [stream for stream in self.decodes.values() if stream.waits]
        if placement.HasField("prefill"):
            start = self._frame(place, attempt, 0)
            start.prefill.n = self._request.n
            start.prefill.sources.extend(placement.sources)
            self.prefill = self._begin(Phase.PREFILL, 0, placement.prefill, start)
            for stream in waiting:
                stream.update_sources(placement.sources)
        else:
            # Those that wait for another's KV would wait in vain: they start from scratch.
            for stream in waiting:
                self.drop(stream)

    def _write_answer(self, output: Output, place: Placement, attempt: int) -> None:
        placement = place.placement
        start = self._frame(place, attempt, output.choice)
        if self.prefill is not None and not output.token_ids:
            start.prepare.SetInParent()
            start.prepare.sources.extend(placement.sources)
        else:
            start.generate.SetInParent()
            start.generate.output_so_far.extend(output.token_ids)
            start.generate.sources.extend(placement.sources)
            start.generate.wait_for_kv = self.prefill is not None
        stream = self._begin(Phase.DECODE, output.choice, placement.decode, start)
        self.decodes[output.choice] = stream

    def _frame(self, place: Placement, attempt: int, choice: int) -> worker_pb2.Start:
        request, route = self._request, self._route
        start = worker_pb2.Start(
            context=request.context,
            choice=choice,
            traceparent=route.traceparent,
            cache_salt=route.cache_salt,
            ticket="" if place.ticket is None else place.ticket.name,
            prompt_token_ids=request.prompt,
            sampling=request.sampling,
        )
        start.context.attempt = attempt
        left = max(0.001, route.deadline - monotonic())
        start.timeout.FromNanoseconds(int(left * 1e9))
        return start

    def _begin(
        self, phase: Phase, choice: int, target: router_pb2.Target, start: worker_pb2.Start
    ) -> WorkerStream:
        connection = self._route.pool.get(target)
        stream = WorkerStream(phase, choice, connection, start, self._buffer, monotonic())
        self._streams[stream.stream_id] = stream
        return stream
