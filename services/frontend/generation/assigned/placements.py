"""The placements of one request; searches run in the background while it continues."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from opentelemetry import trace

from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from baton.telemetry.tracing import current_span
from services.frontend.generation.assigned.assignments import GenerationContext
from services.frontend.generation.progress import RequestProgress
from services.frontend.generation.state.actions import Place
from services.frontend.metrics import PLACEMENT_RETRIES
from services.frontend.placement.placement import Placement
from services.frontend.placement.query_times import QueryTimes
from services.frontend.placement.waiting import WorkerWait
from services.frontend.requests.request import ResolvedRequest

TOKEN_BYTES = 40
"""Approximate memory of a token in a Python list."""
FIRST_PAUSE_SECONDS = 0.025
MAX_PAUSE_SECONDS = 0.5
"""Most seconds before a stream that found no space is placed again."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One search, with the state at its start."""

    number: int
    failed: int
    """Streams that had failed."""
    retried: bool
    """Whether some of them caused it."""
    began: float
    changes: int
    """`changes` of the queue of requests waiting for a worker."""


def _nobody(_: object) -> None:
    """Ignore a result after release."""


def _nothing() -> None:
    """Ignore a change after release."""


class RequestPlacements:
    """The placements of one request. Owned by its `Generation`; runs on the event loop.

    A search queries a router, which may queue the request. If no suitable worker is known, the
    request waits here until one appears, and may be searched for again. The end of a search, for
    any reason, removes the request from either queue.
    """

    def __init__(
        self,
        request: ResolvedRequest,
        context: GenerationContext,
        progress: RequestProgress,
        on_placed: Callable[[Placement], None],
        on_changed: Callable[[], None],
        on_failed: Callable[[BatonError], None],
    ) -> None:
        """Start without placements.

        Args:
            request: the request to place.
            context: how to find workers.
            progress: the progress of the request.
            on_placed: called with the result of a search.
            on_changed: called when the request starts or stops waiting for a worker.
            on_failed: called with the error of a failed search.
        """
        self._request = request
        self._context = context
        self._progress = progress
        self._on_placed = on_placed
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._count = 0
        self._placements: list[Placement] = []
        """Placements whose tickets are not returned."""
        self._attempts = 0
        """Placements since the last token: the first one and those after failures."""
        self._attempt_tokens = 0
        """Output tokens at the last attempt."""
        self._failed = 0
        """Streams that had failed at the last attempt."""
        self._search: asyncio.Task[Placement] | None = None
        self._worker_wait: WorkerWait | None = None
        """Set while no worker is available."""
        self._waiting_since: float | None = None
        """When the wait for a worker began, in the loop's time; None: since a placement."""
        self._longest_pause = FIRST_PAUSE_SECONDS
        """Longest pause before the next search for streams that found no space."""
        self._handed_back = 0
        """Number of such streams when the last search began."""
        self._refused = False
        """Whether the last search was rejected for lack of space, after an earlier success."""

    def __len__(self) -> int:
        """Return the number of placements."""
        return self._count

    @property
    def asking(self) -> bool:
        """Whether a router query is open."""
        return self._search is not None

    @property
    def searching(self) -> bool:
        """Whether a router query is open, or the request waits for a worker."""
        return self._search is not None or self._worker_wait is not None

    def attempts(self, output_tokens: int) -> int:
        """Return the placements since its last token, except for streams handed over.

        Args:
            output_tokens: delivered so far.
        """
        if output_tokens > self._attempt_tokens:  # a worker that fails now is a new failure
            self._attempts = min(self._attempts, 1)
        return self._attempts

    def search(self, place: Place) -> None:
        """Search for a placement, unless a search is running."""
        streams = self._progress.streams
        failed, number = len(streams.failed), self._count
        pause = self._pause(streams.handed_back)
        self._release_idle()
        changes = self._context.waiting.changes
        attempt = _Attempt(number, failed, failed > self._failed, monotonic(), changes)
        if attempt.retried:
            reason = streams.failed[-1].error.reason.name
            log.info("request.placement.retried", attempt=number, reason=reason)
        self._search = asyncio.create_task(self._find(place, number, pause))
        self._search.add_done_callback(partial(self._found, attempt))

    def _pause(self, handed_back: int) -> float:
        """Return the seconds to wait before a search, increasing while there is no space."""
        if handed_back == self._handed_back and not self._refused:
            return 0.0
        self._handed_back, self._refused = handed_back, False
        longest = self._longest_pause
        self._longest_pause = min(2 * longest, MAX_PAUSE_SECONDS)
        return random.uniform(0.5, 1.0) * longest

    def stop_searching(self) -> None:
        """Cancel the router query and the wait. Idempotent."""
        search, self._search = self._search, None
        if search is not None:
            search.cancel()
        wait, self._worker_wait = self._worker_wait, None
        if wait is not None:
            wait.leave()

    def release(self, *, finished: bool) -> None:
        """Stop searching and return all tickets. Idempotent.

        Args:
            finished: whether the request is done.
        """
        self.stop_searching()
        for placement in self._placements:
            placement.release(finished=finished)
        # Bound methods of its owner, which would keep both until the garbage collector runs.
        self._on_placed = self._on_failed = _nobody
        self._on_changed = _nothing

    def _release_idle(self) -> None:
        """Return the tickets of placements whose streams have all ended.

        A router counts their work until then. A claim, if any, is held by each of them.
        """
        if self._context.claim is not None:
            return
        in_use = {id(stream.use) for stream in self._progress.streams.open.values()}
        held, self._placements = self._placements, []
        for placement in held:
            if id(placement.use) in in_use:
                self._placements.append(placement)
            else:
                placement.release()

    async def _find(self, place: Place, attempt: int, pause: float) -> Placement:
        context, progress = self._context, self._progress
        if pause:
            await asyncio.sleep(pause)
        streams = progress.streams
        outputs = [len(one.token_ids) for one in progress.unplaced]
        if not outputs:  # compute only the prompt, for the streams that wait for it
            outputs = [len(one.token_ids) for one in progress.outputs if not one.ended]
        with current_span("route", context.trace.context, trace.SpanKind.CLIENT):
            placement = await context.placement_finder.find(
                self._request,
                context.block_key_chains,
                attempt=attempt,
                excluded=place.excluded,
                claim=context.claim,
                before={one.instance for one in (*streams.failed, *streams.handed_over)},
                outputs=outputs,
                times=QueryTimes(
                    context.arrived,
                    context.deadline,
                    self._request.context.ttft_target_seconds,
                    self._max_wait,
                ),
            )
            if placement.queued_seconds:
                span = trace.get_current_span()
                span.set_attribute("baton.queued_seconds", placement.queued_seconds)
            return placement

    def _found(self, attempt: _Attempt, search: "asyncio.Task[Placement]") -> None:
        stopped = search is not self._search
        if not stopped:
            self._search = None
        if search.cancelled():
            return
        error = search.exception()
        if stopped:  # the request ended during the router query
            if error is None:
                search.result().release()
        elif error is None:
            self._add(attempt, search.result())
        elif not isinstance(error, BatonError):
            log.error("request.placement.failed", exc_info=error)
            self._on_failed(BatonError(Reason.INTERNAL, "internal error"))
        elif error.reason is Reason.NO_WORKER and self._may_wait(error):
            self._wait_for_worker(error, attempt.changes)
        elif error.reason is Reason.OVERLOADED and attempt.number:
            self._refused = True  # the request was admitted: it waits for space until its deadline
            self._on_changed()
        else:
            self._on_failed(error)

    def _add(self, attempt: _Attempt, placement: Placement) -> None:
        if attempt.retried:
            PLACEMENT_RETRIES.inc()
        self._attempts += attempt.retried or not attempt.number
        self._attempt_tokens = self._progress.output_tokens
        self._failed = attempt.failed
        self._count += 1
        self._waiting_since = None
        self._placements.append(placement)
        self._progress.usage.add_placement(placement, attempt.began, monotonic())
        self._on_placed(placement)

    @property
    def _max_wait(self) -> float | None:
        """The longest predicted wait, in seconds; None: as long as for any request."""
        return None if self._progress.output_tokens else self._context.max_wait

    def _may_wait(self, error: BatonError) -> bool:
        """Return whether the request waits for a worker: a bounded one only for one that starts."""
        most = self._max_wait
        name = self._request.model.name
        return most is None or self._context.waiting.expects(name, error, most)

    def _wait_for_worker(self, error: BatonError, changes: int) -> None:
        """Continue with running streams, and search again once a placement may exist."""
        request = self._request
        tokens = len(request.prompt) + sum(len(one.token_ids) for one in self._progress.outputs)
        try:
            self._worker_wait = self._context.waiting.enter(
                request.model.name,
                tokens * TOKEN_BYTES,
                error,
                self._worker_appeared,
                self._on_failed,
                changes,
                self._waiting_since,
                self._max_wait,
            )
            self._waiting_since = self._worker_wait.began
        except BatonError as full:
            self._on_failed(full)
        else:
            self._on_changed()

    def _worker_appeared(self) -> None:
        self._worker_wait = None
        self._on_changed()
