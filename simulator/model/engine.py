"""An engine: one prompt at a time, in chunks, together with a batch of streams.

Steps are not events. Between two changes of the work all steps take equally long, so that an engine
advances by as many steps as fit into the time between them.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from simulator.model.costs import CostModel
from simulator.model.events import EventLoop
from simulator.model.step_times import StepTimes
from simulator.model.waiting_line import Job
from simulator.request import Request

_STEP_SHARE = 1e-6
"""Tolerance for the end of a stream, as a share of a step: sums of times are not exact."""


class SimulatedEngine:
    """Computes prompts and streams; a started prompt is computed to its end.

    Args:
        costs: costs of steps.
        loop: provides the time.
        step_times: counts the durations of streams' steps.
        on_prefilled: called with each job when its prompt is computed.
        on_ended: called with each request when its stream has ended.
    """

    def __init__(
        self,
        costs: CostModel,
        loop: EventLoop,
        step_times: StepTimes,
        on_prefilled: Callable[[Job], None],
        on_ended: Callable[[Request], None],
    ) -> None:
        self._costs = costs
        self._loop = loop
        self._step_times = step_times
        self._on_prefilled = on_prefilled
        self._on_ended = on_ended
        self._job: Job | None = None
        self._chunk_work = 0.0
        """Seconds to compute a chunk alone."""
        self._chunk_seconds = 0.0
        """Duration of a chunk together with the running streams."""
        self._chunks_left = 0.0
        self._streams: list[tuple[float, int, Request]] = []
        """Streams, sorted by the step at which they end."""
        self._joined = 0
        self._steps = 0.0
        self._step_seconds = 0.0
        self._advanced_at = 0.0
        self._plan = 0

    @property
    def prefilling(self) -> bool:
        """Whether a prompt is being computed."""
        return self._job is not None

    @property
    def streams(self) -> int:
        """Number of running streams."""
        return len(self._streams)

    @property
    def busy_until(self) -> float:
        """When the current prompt ends, if the batch stays the same."""
        if self._job is None:
            return self._advanced_at
        return self._advanced_at + self._chunks_left * self._chunk_seconds

    def prefill(self, job: Job, tokens: int) -> None:
        """Start computing a prompt; no other may be in progress."""
        self._advance()
        self._job = job
        chunks = max(1.0, tokens / self._costs.chunk_tokens) if self._costs.chunk_tokens else 1.0
        self._chunk_work, self._chunks_left = job.work / chunks, chunks
        self._schedule()

    def decode(self, request: Request, steps: float | None = None) -> None:
        """Start a stream.

        Args:
            request: whose it is.
            steps: after which it ends; None: those of its output.
        """
        self._advance()
        self._joined += 1
        left = request.output_tokens if steps is None else steps
        heappush(self._streams, (self._steps + left, self._joined, request))
        self._schedule()

    def clear(self) -> tuple[Job | None, list[tuple[Request, float]]]:
        """Lose all work.

        Returns:
            (the prompt that was being computed, the streams and the steps that each had left).
        """
        self._advance()
        job, self._job = self._job, None
        streams = [(request, max(0.0, end - self._steps)) for end, _, request in self._streams]
        self._streams = []
        self._schedule()
        return job, streams

    def _advance(self) -> None:
        now = self._loop.now
        passed, self._advanced_at = now - self._advanced_at, now
        if passed <= 0:
            return
        if self._streams:
            steps = passed / self._step_seconds
            self._steps += steps
            self._step_times.add(self._step_seconds, steps * len(self._streams))
        if self._job is not None:
            self._chunks_left = max(0.0, self._chunks_left - passed / self._chunk_seconds)

    def _schedule(self) -> None:
        """Schedule the next change; cancel the previously scheduled one."""
        batch = self._costs.batch_step_seconds(len(self._streams))
        beside = self._costs.chunk_tokens > 0
        self._step_seconds = batch
        if self._job is not None:
            self._chunk_seconds = self._chunk_work
            if beside:
                mixed = self._costs.mixed_step_seconds(self._chunk_work, len(self._streams))
                self._chunk_seconds = self._step_seconds = mixed
        self._plan += 1
        due, ends = float("inf"), float("inf")
        if self._job is not None:
            due = self.busy_until
        if self._streams:
            left = max(0.0, self._streams[0][0] - self._steps)
            ends = self._advanced_at + left * self._step_seconds
        if self._job is not None and due <= ends:
            self._loop.at(due, self._finish_prefill, self._plan)
        elif self._streams:
            self._loop.at(ends, self._finish_streams, self._plan)

    def _finish_prefill(self, plan: int) -> None:
        job = self._job
        if plan != self._plan or job is None:
            return
        self._advance()
        self._job = None
        self._schedule()
        self._on_prefilled(job)

    def _finish_streams(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        # The first one is why this was called, whatever rounding says.
        ended = [heappop(self._streams)[2]]
        while self._streams and self._streams[0][0] <= self._steps + _STEP_SHARE:
            ended.append(heappop(self._streams)[2])
        self._schedule()
        for request in ended:
            self._on_ended(request)
