"""A request that runs on workers: carries out the decisions of `reconcile`."""

import asyncio
from collections.abc import Sequence

from baton.request.stream_events import Event
from baton.v1 import common_pb2
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.assigned.placements import RequestPlacements
from services.frontend.generation.generation import Generation, GenerationSetup
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.state import actions
from services.frontend.generation.state.reconcile import reconcile
from services.frontend.placement.placement import Placement
from services.frontend.workers.events import StreamEvent


class WorkerGeneration(Generation):
    """A `Generation` on prefill and decode workers, which turns their tokens into events."""

    def __init__(self, setup: GenerationSetup, context: GenerationContext) -> None:
        """As for `Generation`; `context` finds and reaches workers."""
        super().__init__(setup, context)
        request = setup.request
        self._context = context
        self._progress = RequestProgress(request, context, self.buffer)
        self._placements = RequestPlacements(
            request, context, self._progress, self._placed, self.buffer.wake, self.end
        )
        self._place: actions.Place | None = None
        """Set while a placement is needed."""
        self._report_timer: asyncio.TimerHandle | None = None
        self._report_deadline_passed = False

    @property
    def progress(self) -> RequestProgress:
        """Its outputs and usage."""
        return self._progress

    @property
    def ran(self) -> bool:
        """Whether a worker was found for it."""
        return bool(len(self._placements))

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
        return self._enough or self.finished or (self._place is not None and self._interrupted)

    def _run(self) -> None:
        self._progress.begin(self._begun)
        self._reconcile(self._begun)
        if self._place is not None:
            self._placements.search(self._place)
        else:
            self.buffer.wake()

    def _go_on(self) -> None:
        if self._place is None:
            return
        if self._interrupted:
            self.take(self.buffer.drain())  # lost streams are placed with it
        if self._place is not None and self._interrupted:
            self._placements.search(self._place)

    @property
    def _interrupted(self) -> bool:
        """Whether a placement is needed and no search is running."""
        return self._place is not None and not self._placements.searching

    @property
    def _begun_may_go(self) -> bool:
        return not self._placements.asking

    def _receive(self, received: list[StreamEvent], events: list[Event]) -> None:
        for event in received:
            self._progress.add_event(event, events)
        self._reconcile(events)

    def _reconcile(self, events: list[Event], placement: Placement | None = None) -> None:
        if not self._running:
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

    def _placed(self, placement: Placement) -> None:
        self._reconcile([], placement)
        self.buffer.wake()

    def _await_reports(self) -> None:
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            seconds = self._context.report_seconds
            self._report_timer = loop.call_later(seconds, self._stop_awaiting)

    def _stop_awaiting(self) -> None:
        self._report_deadline_passed = True
        self.buffer.wake()

    def _hold(self, *, held: bool) -> None:
        pauses = self._progress.streams.pauses
        if held:
            pauses.pause()
        else:
            pauses.resume()

    def _stop(self, *, finished: bool) -> None:
        self._place = None
        if self._report_timer is not None:
            self._report_timer.cancel()
        self._progress.streams.release_all()
        self._placements.release(finished=finished)
