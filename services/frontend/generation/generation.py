"""One admitted request: carries out the decisions of `reconcile`, and turns tokens into events."""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from time import monotonic

from opentelemetry import trace

from baton.errors import BatonError, Reason
from baton.request.prices import Price
from baton.request.stream_events import Event, Finished, Usage
from baton.telemetry import tracing
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.accounting.metering import RequestMeter, cost_of
from services.frontend.generation.accounting.telemetry import record_generation
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.placements import RequestPlacements
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.state import actions
from services.frontend.generation.state.reconcile import reconcile
from services.frontend.placement.placement import Placement
from services.frontend.requests.claims import RequestClaim
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import StreamEvent

Sink = Callable[[list[Event]], bool]
"""Receives events, in order, and returns whether it has enough for now. Called synchronously from a
worker connection's reader: it must not wait."""


def _nobody(_: list[Event]) -> bool:
    return True


class _State(Enum):
    NEW = "new"
    RUNNING = "running"
    RECORDING = "recording"
    """All output was delivered; its end is reported once its usage is written."""
    FINISHED = "finished"
    RELEASED = "released"
    """It ended before it finished."""


class Generation:
    """One admitted request. One task calls `follow` until `finished`, and `close` in a `finally`.

    Runs on the event loop. Workers' reports arrive through `buffer`, which the surface may pause,
    resume and wake.
    """

    def __init__(
        self,
        request: ResolvedRequest,
        context: GenerationContext,
        operation: str,
        span: trace.Span,
        on_closed: Callable[["Generation"], None],
        begin_meter: Callable[[], RequestMeter] | None = None,
        price: Price | None = None,
    ) -> None:
        """Start the request's deadline; nothing else happens before `follow`.

        Args:
            request: what to generate.
            context: finds and reaches workers.
            operation: `chat` or `text_completion`, for telemetry.
            span: ended with the request.
            on_closed: called once, by the first `close`.
            begin_meter: called when the request begins. Returns the recorder of its usage; None:
                its usage is not measured.
            price: the price of its tokens; None if it has none.
        """
        self.request = request
        self.buffer = EventBuffer(self._release, context.buffer_bytes, self._hold)
        self._context = context
        self._operation = operation
        self._span = span
        self._on_closed: Callable[[Generation], None] | None = on_closed
        self._begin_meter = begin_meter
        self._meter: RequestMeter | None = None
        self._price = price
        self._cost: int | None = None
        """Set once it has ended, if it had a price."""
        self._path: RequestPath | None = None
        """Set once it has ended."""
        self._end_event: Finished | None = None
        """Set while its usage is being written."""
        self._recorded = False
        self._outcome = Reason.CANCELLED.name
        self._error = ""
        """Message of the error that ended it."""
        self._state = _State.NEW
        self._progress = RequestProgress(request, context, self.buffer)
        self._placements = RequestPlacements(
            request, context, self._progress, self._placed, self.buffer.wake, self.end
        )
        self._place: actions.Place | None = None
        """Set while a placement is needed."""
        self._begun: list[Event] = []
        """Events for the sink once it is placed, or waits for a worker."""
        self._sink: Sink = _nobody
        self._enough = False
        """Whether the sink has enough for now."""
        late = BatonError(Reason.DEADLINE, "the request exceeded its deadline")
        left = max(0.0, context.deadline - monotonic())
        if context.claim is not None:
            context.claim.on_superseded = self.end
        self._deadline_timer = asyncio.get_running_loop().call_later(left, self.end, late)
        self._report_timer: asyncio.TimerHandle | None = None
        self._report_deadline_passed = False

    @property
    def claim(self) -> RequestClaim | None:
        """The request's claim on an execution id."""
        return self._context.claim

    @property
    def finished(self) -> bool:
        """Whether the sink has received `Finished`."""
        return self._state is _State.FINISHED

    async def follow(self, sink: Sink) -> None:
        """Pass events to `sink` as they arrive, until it has enough or the request has `finished`.

        Events that arrive while this does not run, or while `buffer` is paused, are queued there.
        After `buffer.wake` the sink may receive an empty list.

        Raises:
            BatonError: the request failed. No further events follow.
        """
        self._sink, self._enough = sink, False
        try:
            if self._state is _State.NEW:
                self._begin()
            while not (self._enough or self.finished):
                if self._can_be_placed:
                    self.take(self.buffer.drain())  # lost streams are placed with it
                if self._place is not None and self._can_be_placed:
                    self._placements.search(self._place)
                if not (self._enough or self.finished):
                    await self.buffer.run(self)
        except BatonError as error:
            self._outcome, self._error = error.reason.name, error.message
            raise
        if self.finished:
            self._outcome = "ok"

    def end(self, error: BatonError) -> None:
        """Release everything and let `follow` fail, now or when it is called.

        A request that has delivered all output ends normally, once its usage is written.
        """
        if self._state is _State.RECORDING:
            return
        self.buffer.fail(error)
        self._release()

    def failed(self, reason: Reason) -> None:
        """Record why the request is closed before its end, unless the client cancelled it."""
        self._outcome = reason.name

    def add_to(self, record: RequestRecord) -> None:
        """Add the progress so far to the record of the request."""
        progress, usage = self._progress, self._progress.usage
        record.add(
            len(self.request.prompt),
            usage.cached_tokens,
            progress.output_tokens,
            usage.first_token_seconds,
            usage.queued_seconds,
            self.path,
        )

    @property
    def outcome(self) -> str:
        """`ok` once it has finished, else the reason of the error that ended it."""
        return self._outcome

    @property
    def usage(self) -> Usage:
        """What it used so far."""
        return self._progress.usage.total(self._progress.output_tokens)

    @property
    def used_tokens(self) -> int:
        """Prompt and output tokens so far; 0 if no worker was found for it."""
        if not len(self._placements):
            return 0
        return len(self.request.prompt) + self._progress.output_tokens

    @property
    def cost(self) -> int | None:
        """The cost in nano-dollars once the request has ended; None if it had no price.

        Constant from then on, and equal to the cost in the usage record.
        """
        if self._cost is None:
            self._cost = cost_of(self._progress, self._price)
        return self._cost

    @property
    def path(self) -> RequestPath:
        """Where the request ran, once it has ended. Constant from then on."""
        if self._path is None:
            self._path = self._progress.usage.path(self.request.context, monotonic())
        return self._path

    def close(self) -> None:
        """Release everything that the request holds, and record it. Idempotent."""
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is None:
            return
        self._release()
        self._sink = _nobody
        self.buffer.let_go()
        on_closed(self)
        if self._meter is not None:
            self._meter.end(self._progress, self._outcome, self.cost, self.path, self._error)
            if self._meter.notable:
                tracing.keep(self._span)
        seconds = monotonic() - self._context.arrived
        record_generation(self._progress, self._operation, self._outcome, self._span, seconds)

    # Workers' reports: called by the buffer.

    def take_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """Process tokens of one choice. On the hot path: no decision while a stream just runs."""
        events: list[Event] = []
        if self._progress.add_tokens(stream_id, choice, position, token_ids, logprobs, events):
            self._reconcile(events)
        self._enough = self._sink(events)
        return self._enough or self._can_be_placed or self._state is _State.FINISHED

    def take(self, received: list[StreamEvent]) -> bool:
        """Process queued events, decide what to do, and notify the sink."""
        events: list[Event] = []
        if self._begun and not self._placements.asking:
            events, self._begun = self._begun, events
        for event in received:
            self._progress.add_event(event, events)
        self._reconcile(events)
        if self._recorded and self._end_event is not None:
            self._state = _State.FINISHED
            events.append(self._end_event)
            self._end_event = None
        self._enough = self._sink(events)
        return self._enough or self._can_be_placed or self._state is _State.FINISHED

    # Actions: decided by `reconcile`, carried out here.

    def _begin(self) -> None:
        self._state = _State.RUNNING
        if self._begin_meter is not None:
            self._meter = self._begin_meter()
        self._progress.begin(self._begun)
        self._reconcile(self._begun)
        if self._place is not None:
            self._placements.search(self._place)
        else:
            self.buffer.wake()

    def _reconcile(self, events: list[Event], placement: Placement | None = None) -> None:
        if self._state is not _State.RUNNING:
            return
        self._place = None
        progress, streams = self._progress, self._progress.streams
        failed = len(streams.failed)
        for action in reconcile(
            progress.outputs,
            streams.open.values(),
            streams.failed,
            placements=self._placements.attempts(progress.output_tokens),
            max_placements=self._context.max_placements,
            plainly_greedy=self.request.plainly_greedy,
            placement=placement,
            report_deadline_passed=self._report_deadline_passed,
        ):
            match action:
                case actions.Place():
                    self._place = action
                case actions.AwaitReports():
                    self._await_reports()
                case actions.Finish():
                    self._finish(events)
                case actions.Fail():
                    self.end(action.error)  # the sink still receives earlier events
                case _:
                    streams.carry_out(action)
        if self._place is None:
            self._placements.stop_searching()
        if len(streams.failed) > failed:  # a connection was lost before a stream could start
            self._reconcile(events)

    def _finish(self, events: list[Event]) -> None:
        progress, meter = self._progress, self._meter
        recorded = meter is not None and meter.recorded
        self._release(_State.RECORDING if recorded else _State.FINISHED)
        total = progress.usage.total(progress.output_tokens)
        end = Finished(total, progress.usage.steps())
        if recorded:
            self._end_event = end
        else:
            events.append(end)
        if meter is not None:
            meter.end(progress, "ok", self.cost, self.path, on_written=self._on_recorded)

    def _on_recorded(self) -> None:
        self._recorded = True
        self.buffer.wake()

    def _placed(self, placement: Placement) -> None:
        self._reconcile([], placement)
        self.buffer.wake()

    @property
    def _can_be_placed(self) -> bool:
        """Whether a placement is needed and no search is running."""
        return self._place is not None and not self._placements.searching

    def _await_reports(self) -> None:
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            seconds = self._context.report_seconds
            self._report_timer = loop.call_later(seconds, self._stop_awaiting)

    def _stop_awaiting(self) -> None:
        self._report_deadline_passed = True
        self.buffer.wake()

    def _hold(self, held: bool) -> None:
        """Pause the request's streams on their workers, or resume them, as its client reads."""
        pauses = self._progress.streams.pauses
        if not held:
            pauses.resume()
        elif self._state is _State.RUNNING:
            pauses.pause()

    def _release(self, state: _State = _State.RELEASED) -> None:
        """Release everything that the request holds anywhere, once."""
        if self._state not in (_State.NEW, _State.RUNNING):
            return
        self._state, self._place = state, None
        self._deadline_timer.cancel()
        if self._report_timer is not None:
            self._report_timer.cancel()
        self._progress.streams.release_all()
        self._placements.release(finished=state is not _State.RELEASED)
