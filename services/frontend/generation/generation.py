"""One admitted request, wherever it runs: its events, its end, its usage and its record."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from time import monotonic
from typing import NamedTuple, Protocol

from baton.errors import BatonError, Reason
from baton.request.prices import Price
from baton.request.stream_events import Event, Finished, Started, Usage
from baton.telemetry import tracing
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.accounting.metering import RequestMeter, cost_of
from services.frontend.generation.accounting.progress import Progress
from services.frontend.generation.accounting.telemetry import record_generation
from services.frontend.requests.claims import RequestClaim
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import StreamEvent

Sink = Callable[[list[Event]], bool]
"""Receives events, in order, and returns whether it has enough for now. Called synchronously from a
connection's reader: it must not wait."""


class RequestLifetime(Protocol):
    """How long a request runs, and what it may hold. Times are monotonic, in seconds."""

    @property
    def claim(self) -> RequestClaim | None:
        """Its claim on an execution id; None: its id is new."""

    @property
    def arrived(self) -> float:
        """When the request arrived."""

    @property
    def deadline(self) -> float:
        """When it fails unless it has ended."""

    @property
    def buffer_bytes(self) -> int:
        """Most bytes of output that wait for the client."""


def _nobody(_: list[Event]) -> bool:
    return True


class GenerationSetup(NamedTuple):
    """What every generation is made of, wherever it runs."""

    request: ResolvedRequest
    """What to generate."""
    operation: str
    """`chat` or `text_completion`, for telemetry."""
    trace: tracing.RequestTrace
    """Its span ends with the request."""
    on_closed: Callable[["Generation"], None]
    """Called once, by the first `close`."""
    begin_meter: Callable[[], RequestMeter] | None = None
    """Called when the request begins. Returns the recorder of its usage; None: its usage is not
    measured."""
    price: Price | None = None
    """The price of its tokens; None if it has none."""


class _State(Enum):
    NEW = "new"
    RUNNING = "running"
    RECORDING = "recording"
    """All output was delivered; its end is reported once its usage is written."""
    FINISHED = "finished"
    RELEASED = "released"
    """It ended before it finished."""


class Generation(ABC):
    """One admitted request. One task calls `follow` until `finished`, and `close` in a `finally`.

    Runs on the event loop. Reports of what runs the request arrive through `buffer`, which the
    surface may pause, resume and wake. Subclasses run it on workers, or at a provider.
    """

    def __init__(self, setup: GenerationSetup, lifetime: RequestLifetime) -> None:
        """Start the request's deadline; nothing else happens before `follow`.

        Args:
            setup: what it is made of.
            lifetime: its deadline, its claim and its bounds.
        """
        self.request = setup.request
        self.buffer = EventBuffer(self._release, lifetime.buffer_bytes, self._hold_if_running)
        self._lifetime = lifetime
        self._operation = setup.operation
        self._trace = setup.trace
        self._on_closed: Callable[[Generation], None] | None = setup.on_closed
        self._begin_meter = setup.begin_meter
        self._meter: RequestMeter | None = None
        self._price = setup.price
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
        self.finished = False
        """Whether the sink has received `Finished`."""
        self._begun: list[Event] = []
        """Events for the sink once it runs, or waits for a worker."""
        self._sink: Sink = _nobody
        self._enough = False
        """Whether the sink has enough for now."""
        self._holding = False
        """Whether `hold` has begun, and found no output."""
        self._held: list[Event] = []
        """Events that `hold` has received."""
        self.abandoned = False
        """Whether another generation answers the request instead."""
        late = BatonError(Reason.DEADLINE, "the request exceeded its deadline")
        left = max(0.0, lifetime.deadline - monotonic())
        if lifetime.claim is not None:
            lifetime.claim.on_superseded = self.end
        self._deadline_timer = asyncio.get_running_loop().call_later(left, self.end, late)

    # What runs it.

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """Its outputs and usage."""

    @property
    @abstractmethod
    def ran(self) -> bool:
        """Whether something was found that runs it."""

    @abstractmethod
    def _run(self) -> None:
        """Start to run; the first events go to `_begun`."""

    @abstractmethod
    def _receive(self, received: list[StreamEvent], events: list[Event]) -> None:
        """Process reports, and append events for the client; call `_finish` after the last one."""

    @abstractmethod
    def _stop(self, *, finished: bool) -> None:
        """Release everything that runs it, once."""

    @abstractmethod
    def _hold(self, *, held: bool) -> None:
        """Pause what runs it, or resume it, as its client reads."""

    @abstractmethod
    def _go_on(self) -> None:
        """Do what is to be done before the next wait for reports."""

    @property
    def _interrupted(self) -> bool:
        """Whether `_go_on` has something to do."""
        return False

    @property
    def _begun_may_go(self) -> bool:
        """Whether the client may learn that the request has begun."""
        return True

    # For surfaces.

    @property
    def claim(self) -> RequestClaim | None:
        """The request's claim on an execution id."""
        return self._lifetime.claim

    async def follow(self, sink: Sink) -> None:
        """Pass events to `sink` as they arrive, until it has enough or the request has `finished`.

        Events that arrive while this does not run, or while `buffer` is paused, are queued there.
        After `buffer.wake` the sink may receive an empty list.

        Raises:
            BatonError: the request failed. No further events follow.
        """
        self._sink, self._enough = sink, False
        if self._held:
            held, self._held = self._held, []
            self._enough = sink(held)
        try:
            if self._state is _State.NEW:
                self._begin()
            while not (self._enough or self.finished):
                self._go_on()
                if not (self._enough or self.finished):
                    await self.buffer.run(self)
        except BatonError as error:
            self._outcome, self._error = error.reason.name, error.message
            raise
        if self.finished:
            self._outcome = "ok"

    async def hold(self) -> None:
        """Run until there is output, which `follow` then passes on first.

        If there is none, the request can still be abandoned: nothing of it was delivered.

        Raises:
            BatonError: as for `follow`; there is no output.
        """
        held: list[Event] = []

        def take(events: list[Event]) -> bool:
            held.extend(events)
            return any(type(event) is not Started for event in events)

        self._holding = True
        await self.follow(take)
        self._holding, self._held = False, held
        self._start_meter()

    def abandon(self) -> None:
        """Release everything and record nothing: another generation answers the request."""
        self.abandoned, self._begin_meter = True, None
        if self._meter is not None:
            self._meter.discard()
        self.close()

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
        progress, usage = self.progress, self.progress.usage
        record.add(
            usage.prompt_tokens,
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
        return self.progress.usage.total(self.progress.output_tokens)

    @property
    def used_tokens(self) -> int:
        """Prompt and output tokens so far; 0 if nothing was found that runs it."""
        if not self.ran:
            return 0
        return self.progress.usage.prompt_tokens + self.progress.output_tokens

    @property
    def cost(self) -> int | None:
        """The cost in nano-dollars once the request has ended; None if it had no price.

        Constant from then on, and equal to the cost in the usage record.
        """
        if self._cost is None:
            self._cost = cost_of(self.progress, self._price)
        return self._cost

    @property
    def path(self) -> RequestPath:
        """Where the request ran, once it has ended. Constant from then on."""
        if self._path is None:
            self._path = self.progress.path(monotonic())
        return self._path

    def close(self) -> None:
        """Release everything that the request holds, and record it. Idempotent."""
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is None:
            return
        self._release()
        self._sink = _nobody
        self.buffer.let_go()
        if self._holding:
            self._start_meter()
        on_closed(self)
        if self._meter is not None:
            self._meter.end(self.progress, self._outcome, self.cost, self.path, self._error)
            if self._meter.notable:
                tracing.keep(self._trace.span)
        seconds = monotonic() - self._lifetime.arrived
        record_generation(self.progress, self._operation, self._outcome, self._trace, seconds)

    # Reports: called by the buffer.

    def take_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """Process tokens of one choice; only workers report them."""
        raise NotImplementedError

    def take(self, received: list[StreamEvent]) -> bool:
        """Process queued reports, decide what to do, and notify the sink."""
        events: list[Event] = []
        if self._begun and self._begun_may_go:
            events, self._begun = self._begun, events
        self._receive(received, events)
        if self._recorded and self._end_event is not None:
            self._state, self.finished = _State.FINISHED, True
            events.append(self._end_event)
            self._end_event = None
        self._enough = self._sink(events)
        return self._enough or self.finished or self._interrupted

    def _begin(self) -> None:
        self._state = _State.RUNNING
        if not self._holding:
            self._start_meter()
        self._run()

    def _start_meter(self) -> None:
        """Begin the record of its usage, unless it has begun or there is none."""
        if self._begin_meter is not None and self._meter is None:
            self._meter = self._begin_meter()

    @property
    def _running(self) -> bool:
        return self._state is _State.RUNNING

    def _finish(self, events: list[Event]) -> None:
        """End a request whose outputs have all ended, and report it once its usage is written."""
        self._start_meter()
        progress, meter = self.progress, self._meter
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

    def _hold_if_running(self, held: bool) -> None:
        if not held or self._running:
            self._hold(held=held)

    def _release(self, state: _State = _State.RELEASED) -> None:
        """Release everything that the request holds anywhere, once."""
        if self._state not in (_State.NEW, _State.RUNNING):
            return
        self._state, self.finished = state, state is _State.FINISHED
        self._deadline_timer.cancel()
        self._stop(finished=state is not _State.RELEASED)
