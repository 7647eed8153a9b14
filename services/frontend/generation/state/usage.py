"""Usage and history of a request, from the reports of workers."""

from baton.internal.v1 import worker_pb2
from baton.request.stream_events import Step, Usage
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.state.path import PathTracker
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import Phase, WorkerStream, WorkerStreamState


class RequestUsage:
    """Usage and steps of one request. Times are monotonic, in seconds."""

    def __init__(self, prompt_tokens: int, arrived: float) -> None:
        self.first_token_at: float | None = None
        """When the first token came, of any choice."""
        self._prompt_tokens = prompt_tokens
        self._arrived = arrived
        self._placed_at = arrived
        """When its last placement was found."""
        self._path = PathTracker(arrived)
        self._steps: list[Step] = []
        self._prefill_cached: int | None = None
        """Cached tokens at the last prefill worker that computed the prompt."""
        self._decode_cached: int | None = None
        """Fewest cached tokens at a decode worker that computed the prompt."""
        self._computed_tokens = 0
        self._queue_seconds = self._kv_byte_seconds = 0.0
        self.queued_seconds = 0.0
        """Seconds in routers' queues, over all placements."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt; a provider's, as it counted them, once it has."""
        return self._prompt_tokens

    def count_prompt(self, tokens: int, cached_tokens: int) -> None:
        """Set the tokens of a prompt as a provider counted them."""
        self._prompt_tokens, self._prefill_cached = tokens, cached_tokens

    def add_upstream(self, provider: str, began: float, now: float, tokens: int) -> None:
        """Add the step of a request that ran at a provider."""
        self._step("provider", provider, began, now - began, tokens=tokens)

    @property
    def first_token_seconds(self) -> float | None:
        """From arrival to the first token; None before it."""
        return None if self.first_token_at is None else self.first_token_at - self._arrived

    def add_placement(self, placement: Placement, begun: float, now: float) -> None:
        """Add the step of a placement that was found."""
        prediction = placement.decision.prediction
        detail, queued = prediction.reason, placement.queued_seconds
        if queued:
            detail = f"after {queued:.3f} s in the router's queue; {detail}"
            self.queued_seconds += queued
        self._placed_at = now
        self._path.placed(placement, now, has_token=self.first_token_at is not None)
        self._step(
            "route",
            placement.placed_by,
            begun,
            now - begun,
            tokens=self._prompt_tokens,
            cached_tokens=prediction.cached_tokens,
            detail=detail,
        )

    def add_transfer(self, stream: WorkerStream, prepared: worker_pb2.Prepared, now: float) -> None:
        """Add the step of a transfer: a decode worker has all of the prompt's KV that will arrive.

        Args:
            stream: the decode stream.
            prepared: the worker's report.
            now: the time.
        """
        if stream.computes_prompt:
            stream.cached_tokens = prepared.ready_tokens
            stream.kv_wait_seconds = prepared.kv_wait_seconds
        else:
            self._path.handed_over(self.first_token_at, now)
            if stream.state is not WorkerStreamState.PREPARED:
                stream.begun_at = now  # the worker was asked to decode before it could
        moved = prepared.fetched_bytes > 0
        if stream.computes_prompt and not moved:
            return
        detail = prepared.transport if moved else "nothing to transfer"
        if moved and self.first_token_at is not None:
            # The rest of the transfer ran while the prompt was computed.
            late = (now - self.first_token_at) * 1e3
            detail += f", complete {late:.0f} ms after the first token"
        # By the worker's clock; the worker did not know the request before its placement.
        seconds = min(prepared.fetch_seconds, now - self._placed_at)
        self._step(
            "transfer",
            stream.instance,
            now - seconds,
            seconds,
            tokens=prepared.ready_tokens,
            cached_tokens=prepared.local_tokens,
            moved_bytes=prepared.fetched_bytes,
            detail=detail,
        )

    def add_stream(self, stream: WorkerStream, usage: common_pb2.Usage | None, now: float) -> None:
        """Add the usage of a stream that ended, and its steps.

        Args:
            stream: the stream.
            usage: reported by its worker; None if the worker could not report it (cancelled, lost).
            now: the time.
        """
        if usage is not None:
            stream.cached_tokens = usage.cached_tokens
            self._computed_tokens += usage.computed_tokens
            self._kv_byte_seconds += usage.kv_byte_seconds
            self._queue_seconds = max(self._queue_seconds, usage.queue_seconds)
        else:
            self._computed_tokens += stream.tokens  # at least these
        computes_prompt = stream.phase is Phase.PREFILL or stream.computes_prompt
        if computes_prompt and stream.first_at is not None:
            self._path.computed(stream, 0.0 if usage is None else usage.queue_seconds)
            if stream.cached_tokens is not None:
                self._add_cached(stream.phase, stream.cached_tokens)
            self._step(
                "prefill",
                stream.instance,
                stream.begun_at,
                stream.first_at - stream.begun_at,
                tokens=self._prompt_tokens,
                cached_tokens=stream.cached_tokens or 0,
                detail="" if stream.phase is Phase.PREFILL else "by the decode worker",
            )
        if stream.phase is Phase.DECODE and stream.tokens:
            begun = (
                stream.begun_at
                if stream.first_at is None or not stream.computes_prompt
                else stream.first_at
            )
            self._step("decode", stream.instance, begun, now - begun, tokens=stream.tokens)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed before the first token, as far as known so far.

        Those of the prefill worker that produced it, otherwise the fewest of a decode worker.
        """
        return (self._decode_cached or 0) if self._prefill_cached is None else self._prefill_cached

    def total(self, output_tokens: int) -> Usage:
        """Return the total for a request with `output_tokens` over all choices."""
        return Usage(
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self.cached_tokens,
            computed_tokens=self._computed_tokens,
            output_tokens=output_tokens,
            queue_seconds=self._queue_seconds,
            kv_byte_seconds=self._kv_byte_seconds,
        )

    def path(self, context: common_pb2.RequestContext, now: float) -> RequestPath:
        """Return the path of the request, which ends now.

        Args:
            context: the request's.
            now: the time.
        """
        return self._path.path(context, self.first_token_at, now)

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order in which they began."""
        return tuple(sorted(self._steps, key=lambda step: step.start_seconds))

    def _add_cached(self, phase: Phase, tokens: int) -> None:
        if phase is Phase.PREFILL:
            self._prefill_cached = tokens
        elif self._decode_cached is None or tokens < self._decode_cached:
            self._decode_cached = tokens

    def _step(
        self,
        name: str,
        instance: str,
        begun: float,
        seconds: float,
        *,
        tokens: int,
        cached_tokens: int = 0,
        moved_bytes: int = 0,
        detail: str = "",
    ) -> None:
        self._steps.append(
            Step(
                name=name,
                instance=instance,
                start_seconds=max(0.0, begun - self._arrived),
                duration_seconds=max(0.0, seconds),
                tokens=tokens,
                cached_tokens=cached_tokens,
                bytes=moved_bytes,
                detail=detail,
            )
        )
