"""The life of one request: placed, read by prefill, written by decode, moved when a worker is lost.

    place ─▶ Prefill on one worker, Prepare per choice on another ─▶ first tokens to the client,
    Generate ─▶ tokens to the client … ─▶ every choice ended ─▶ everything given back

Without a prefill worker in the placement the decode worker reads the prompt itself. A token is a
pure function of the request and of what came before it, so a lost stream is begun anew
elsewhere with the output so far, and the client sees no difference: positions that it has are
dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.telemetry.logs import get_logger
from baton.telemetry.tracing import tracer
from baton.v1 import common_pb2
from services.frontend.generation.assignments import GenerationContext, WorkerAssignments
from services.frontend.generation.events import ChoiceFinished, Event, Finished, Started
from services.frontend.generation.output import Output
from services.frontend.generation.usage import RequestUsage
from services.frontend.metrics import PLACEMENT_RETRIES
from services.frontend.placement.placement import Placement
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.event_buffer import (
    EventBuffer,
    StreamEvent,
    StreamLost,
    TokensReceived,
)
from services.frontend.workers.stream import Phase, WorkerStream

MAX_ATTEMPTS = 3
LAST_REPORTS_SECONDS = 2.0
"""After the last token, how long workers get to end by themselves and report usage."""
# A worker that fails with one of these says nothing about the request: another may do better.
_ELSEWHERE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
)

Sink = Callable[[list[Event]], bool]
"""Takes events, in order, and answers whether it has enough for now. It is called by whoever
delivers what workers say: it must not wait."""

log = get_logger(__name__)


class Orchestrator:
    """Runs one request. One task calls `follow` until `finished`, and `close` in its `finally`."""

    def __init__(self, request: ResolvedRequest, route: GenerationContext) -> None:
        self.request = request
        self.outputs = [Output(request, choice) for choice in range(request.n)]
        self.first_token_seconds: float | None = None
        """From arrival to first token."""
        self.finished = False
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._buffer = EventBuffer(self.close)
        self._usage = RequestUsage(len(request.prompt), route.arrived)
        self._assignments = WorkerAssignments(
            request, self.outputs, route, self._buffer, self._usage
        )
        self._placements: list[Placement] = []
        self._excluded: set[str] = set()
        self._error = _worker_lost()
        self._sink: Sink
        self._enough = False
        self._begun = self._closed = self._report_deadline_passed = False
        self._live = request.n
        """Outputs that have not ended."""
        self._needs_placement = True
        """Something that is needed does not run: a placement is needed."""
        late = BatonError(Reason.DEADLINE, "the request did not end before its deadline")
        left = max(0.0, route.deadline - monotonic())
        self._timers = [self._loop.call_later(left, self.end, late)]

    async def follow(self, sink: Sink) -> None:
        """Give events to `sink` as they come, until it has enough or the request has `finished`.

        What comes while nobody follows, or between `pause` and `resume`, waits in the buffer. After
        a wake `sink` may get no events.

        Raises:
            BatonError: the request failed. Nothing more happens.
        """
        self._sink, self._enough = sink, False
        if not self._begun:
            self._begun = True
            events: list[Event] = []
            await self._begin(events)
            self._enough = sink(events)
        while not (self._enough or self.finished):
            if not self._should_place():
                await self._buffer.run(self)
                continue
            # What was lost with it is placed with it.
            self.take(self._buffer.drain())
            if self._should_place():
                await self._place()

    def take_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """For the buffer."""
        events: list[Event] = []
        self._on_tokens(stream_id, choice, position, token_ids, logprobs, events)
        return self._tell(events)

    def take(self, incoming: list[StreamEvent]) -> bool:
        """For the buffer."""
        events: list[Event] = []
        for one in incoming:
            self._take(one, events)
        return self._tell(events)

    def _tell(self, events: list[Event]) -> bool:
        """Give events to the sink; whether `follow` has something to do."""
        if self._live == 0 and (self._report_deadline_passed or not self._assignments):
            events.append(self._finish())
        self._enough = self._sink(events)
        return self._enough or self.finished or self._should_place()

    def end(self, error: BatonError) -> None:
        """Give everything back and let `follow` fail, now or when it is called."""
        self._buffer.fail(error)
        self.close()

    def wake(self) -> None:
        """Call the sink, though nothing happened."""
        self._buffer.wake()

    def pause(self) -> None:
        """Give the sink nothing until `resume`; a request that is held for too long is cut."""
        self._buffer.pause()

    def resume(self) -> None:
        """Give the sink what waits, and what comes."""
        self._buffer.resume()

    @property
    def output_tokens(self) -> int:
        """Tokens given to the client so far, over all choices."""
        total = sum(len(output.token_ids) for output in self.outputs)
        return total - len(self.request.output_so_far)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that nobody computed, as far as is known by now."""
        return self._usage.cached_tokens

    def close(self) -> None:
        """Give back everything that the request holds anywhere. A second time does nothing."""
        if self._closed:
            return
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._assignments.drop_all()
        for place in self._placements:
            place.release()

    # Placing, and placing again.

    async def _begin(self, events: list[Event]) -> None:
        request, first = self.request, self.outputs[0]
        if request.output_so_far:
            first.push(request.output_so_far)  # the client has its text
        if not first.ended:
            await self._place()
        seed, prompt_tokens = request.sampling.seed, len(request.prompt)
        events.append(Started(request.id, request.model.name, seed, prompt_tokens))
        if first.reason is not None:  # what is resumed had ended
            self._live = 0
            events.append(ChoiceFinished(0, first.reason, first.stop_string))
            events.append(self._finish())

    def _should_place(self) -> bool:
        return self._needs_placement and not self._closed and self._live > 0

    async def _place(self) -> None:
        attempt = len(self._placements)
        if attempt >= MAX_ATTEMPTS:
            raise self._error
        if attempt:
            PLACEMENT_RETRIES.inc()
            log.info("request.placement.retried", attempt=attempt, reason=self._error.message)
        begun = monotonic()
        with tracer().start_as_current_span("route", context=self._route.context):
            place = await self._route.places.find(
                self.request,
                self._route.chains,
                attempt=attempt,
                excluded=self._excluded,
                output_tokens=max(len(output.token_ids) for output in self.outputs),
            )
        self._placements.append(place)
        if self._closed:  # it was cut while the router thought
            place.release()
            return
        now, prediction = monotonic(), place.placement.prediction
        self._usage.routed(place.placed_by, begun, now, prediction)
        gone = self._assignments.start(place, attempt)
        self._needs_placement = gone is not None
        if gone is not None:
            self._excluded.add(gone)

    # What workers say.

    def _take(self, event: StreamEvent, events: list[Event]) -> None:
        if type(event) is TokensReceived:
            self._on_tokens(
                event.stream_id,
                event.choice,
                event.position,
                event.token_ids,
                event.logprobs,
                events,
            )
            return
        stream = self._assignments.find(event.stream_id)
        if stream is None:
            return  # given up meanwhile
        if isinstance(event, StreamLost):
            self._on_lost(stream, _worker_lost())
        elif isinstance(event, worker_pb2.Prepared):
            stream.prepared = True
            first = self.first_token_seconds
            first_at = None if first is None else self._route.arrived + first
            self._usage.prepared(stream, event, monotonic(), first_at)
        elif isinstance(event, worker_pb2.StreamFinished):
            self._on_finished(stream, event, events)
        elif isinstance(event, worker_pb2.StreamFailed):
            self._on_failed(stream, BatonError.from_status(event.status))

    def _on_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
        events: list[Event],
    ) -> None:
        stream = self._assignments.find(stream_id)
        output = self.outputs[choice]
        if stream is None or output.ended:
            return  # given up meanwhile
        known = len(output.token_ids) - position
        if known < 0:  # some are missing: whoever goes on elsewhere gives them too
            stream.release()
            self._on_lost(stream, _worker_lost())
            return
        if known:
            token_ids, logprobs = token_ids[known:], logprobs[known:]
            if not token_ids:
                return
        if stream.first_at is None:
            stream.first_at = monotonic()
            if self.first_token_seconds is None:
                self.first_token_seconds = stream.first_at - self._route.arrived
        delta = output.push(token_ids, logprobs)
        stream.tokens += len(delta.token_ids)
        events.append(delta)
        if output.reason is not None:
            self._on_ended(output, output.reason, events, by=stream)
        elif stream.phase is Phase.PREFILL:
            decode = self._assignments.decodes.get(output.choice)
            if decode is not None and decode.waits:
                decode.generate(output.token_ids, monotonic())

    def _on_finished(
        self, stream: WorkerStream, finished: worker_pb2.StreamFinished, events: list[Event]
    ) -> None:
        self._assignments.forget(stream, finished.usage)
        choices = range(len(self.outputs)) if stream.phase is Phase.PREFILL else (stream.choice,)
        for choice, reason in zip(choices, finished.reasons, strict=False):
            output = self.outputs[choice]
            if not output.ended and reason != common_pb2.FINISH_REASON_PREFILLED:
                events.append(output.end(reason))
                self._on_ended(output, output.reason or reason, events, by=stream)
        self._needs_placement = self._needs_placement or self._misses(stream)
        if stream.phase is Phase.PREFILL:
            self._assignments.prefill_done()

    def _on_ended(
        self,
        output: Output,
        reason: common_pb2.FinishReason.ValueType,
        events: list[Event],
        by: WorkerStream,
    ) -> None:
        self._live -= 1
        events.append(ChoiceFinished(output.choice, reason, output.stop_string))
        decode = self._assignments.decodes.get(output.choice)
        # Workers know no stop strings, and what waits for Generate waits in vain now. A stream that
        # ended the choice by the engine's own rules ends by itself and reports its usage.
        if decode is not None and (decode is not by or output.stop_string):
            self._assignments.drop(decode)
        if self._live == 0:
            timer = self._loop.call_later(LAST_REPORTS_SECONDS, self._no_more_reports)
            self._timers.append(timer)

    def _on_failed(self, stream: WorkerStream, error: BatonError) -> None:
        if error.code not in _ELSEWHERE and self._misses(stream):
            self.end(error)  # the sink gets what came before it, and `follow` fails with this
        else:
            self._on_lost(stream, error)

    def _on_lost(self, stream: WorkerStream, error: BatonError) -> None:
        self._assignments.forget(stream)
        self._excluded.add(stream.instance)
        self._error = error
        if self._misses(stream):
            self._needs_placement = True
        elif stream.phase is Phase.PREFILL:
            self._assignments.prefill_done()

    def _misses(self, stream: WorkerStream) -> bool:
        """Whether the request cannot go on once a stream has ended, without another one."""
        if stream.phase is Phase.PREFILL:
            return self._assignments.needs_prefill(without=stream)
        return not self.outputs[stream.choice].ended

    # The end.

    def _no_more_reports(self) -> None:
        self._report_deadline_passed = True
        self._buffer.wake()

    def _finish(self) -> Finished:
        self._assignments.drop_all()
        self.finished = True
        return Finished(self._usage.usage(self.output_tokens), self._usage.steps())


def _worker_lost() -> BatonError:
    return BatonError(Reason.WORKER_LOST, "the worker of this request was lost", retry_after=1.0)
