"""The progress of a request, and how reports of workers change it."""

from collections.abc import Sequence
from time import monotonic

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.request.stream_events import (
    ChoiceFinished,
    Event,
    FinishReason,
    PromptLogprobs,
    Started,
    TokenLogprob,
)
from baton.usage.path import RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.assigned.assignments import GenerationContext, WorkerAssignments
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.generation.state.reconcile import worker_lost
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.metrics import FIRST_TOKEN
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import (
    ProviderEnded,
    ProviderOutput,
    ProviderUsage,
    StreamEvent,
    StreamLost,
    TokensReceived,
    WorkerProbed,
)
from services.frontend.workers.stream import Phase, WorkerStream, WorkerStreamState

_FINISH_REASONS = {
    worker_pb2.END_REASON_STOP: FinishReason.STOP,
    worker_pb2.END_REASON_LENGTH: FinishReason.LENGTH,
}
"""Why an output ended; one that was only prefilled continues."""


class RequestProgress:
    """The outputs, streams and usage of one request. Owned by its `Generation`.

    Reports of released streams, and tokens at positions that the client already has, are dropped.
    Events for the client are appended to the list that is passed in.
    """

    def __init__(
        self, request: ResolvedRequest, context: GenerationContext, buffer: EventBuffer
    ) -> None:
        self.request = request
        self._exemplar = context.trace.exemplar
        self.outputs = [ChoiceOutput(request, choice) for choice in range(request.n)]
        self._scored_tokens = 1
        """Leading prompt tokens whose log probabilities were delivered; the first has none."""
        self.usage = RequestUsage(len(request.prompt), context.arrived)
        self.streams = WorkerAssignments(request, self.outputs, context, buffer, self.usage)

    @property
    def output_tokens(self) -> int:
        """Tokens delivered to the client so far, over all choices."""
        total = 0
        for output in self.outputs:
            total += len(output.token_ids)
        return total if self.request.counts_so_far else total - len(self.request.output_so_far)

    def path(self, now: float) -> RequestPath:
        """Return the path of the request, which ends now."""
        return self.usage.path(self.request.context, now)

    @property
    def unplaced(self) -> list[ChoiceOutput]:
        """Outputs that continue and that no worker is decoding."""
        placed = {one.choice for one in self.streams.open.values() if one.phase is Phase.DECODE}
        return [one for one in self.outputs if one.reason is None and one.choice not in placed]

    def begin(self, events: list[Event]) -> None:
        """Add the output of a resumed stream, and report its start to the client."""
        request, first = self.request, self.outputs[0]
        seed, prompt_tokens = request.sampling.seed, len(request.prompt)
        exact, adapter = request.exact_continuation, request.context.adapter
        of = (request.id, request.model.name, seed, prompt_tokens, exact, adapter)
        events.append(Started(*of, requested_model=request.requested))
        if request.output_so_far:
            first.push(request.output_so_far)
            if request.counts_so_far:
                self.usage.first_token_at = monotonic()
        if first.reason is not None:  # the resumed output had ended
            events.append(_finished(first, first.reason))

    def add_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
        events: list[Event],
    ) -> bool:
        """Add tokens of one choice to its output; the hot path.

        Returns whether a decision is needed: not while a decode stream just continues.
        """
        stream = self.streams.find(stream_id)
        if stream is None or self.outputs[choice].reason is not None:
            return False  # released meanwhile
        output = self.outputs[choice]
        known = len(output.token_ids) - position
        if known < 0:  # some are missing: the next stream delivers them too
            stream.release()
            self.streams.lost(stream, worker_lost())
            return True
        if known:
            token_ids, logprobs = token_ids[known:], logprobs[known:]
            if not token_ids:
                return False
        if stream.first_at is None:
            stream.first_at = monotonic()
            stream.use.see_token(stream.first_at)
            if stream.phase is Phase.DECODE:
                output.decoded = True
                output.exact_continuation &= stream.exact_continuation
            if self.usage.first_token_at is None:
                self.usage.first_token_at = stream.first_at
                # Now, not at the end: streams may run for minutes.
                seconds = self.usage.first_token_seconds or 0.0
                FIRST_TOKEN.labels(self.request.model.name).observe(seconds, self._exemplar)
        delta = output.push(token_ids, logprobs)
        stream.tokens += len(delta.token_ids)
        events.append(delta)
        if output.reason is None:
            return stream.phase is Phase.PREFILL
        if stream.phase is Phase.DECODE and not output.stop_string:
            stream.state = WorkerStreamState.ENDING
        events.append(_finished(output, output.reason))
        return True

    def add_event(self, event: StreamEvent, events: list[Event]) -> None:
        """Add any other report of a worker. A decision may be needed afterwards."""
        if type(event) is TokensReceived:
            self.add_tokens(
                event.stream_id,
                event.choice,
                event.position,
                event.token_ids,
                event.logprobs,
                events,
            )
            return
        if isinstance(event, ProviderOutput | ProviderUsage | ProviderEnded):
            raise TypeError(f"workers do not report {type(event).__name__}")
        stream = self.streams.find(event.stream_id)
        if stream is None:
            return  # released meanwhile
        if isinstance(event, worker_pb2.Prepared):
            stream.awaits_kv = False
            self.usage.add_transfer(stream, event, monotonic())
        elif isinstance(event, worker_pb2.PromptLogprobs):
            known = self._scored_tokens - event.position
            if 0 <= known < len(event.entries):
                entries = [TokenLogprob.from_proto(one) for one in event.entries[known:]]
                events.append(PromptLogprobs(self._scored_tokens, entries))
                self._scored_tokens += len(entries)
        elif isinstance(event, worker_pb2.Begun):
            stream.note_begun(event)
        elif isinstance(event, worker_pb2.StreamFinished):
            self._on_finished(stream, event, events)
        elif isinstance(event, worker_pb2.StreamFailed):
            error = BatonError.from_status(event.status)
            if error.reason is Reason.WORKER_LOST:  # its engine failed
                self.streams.lost_worker(stream, error)
            elif error.reason is Reason.OVERLOADED:
                self.streams.hand_back(stream, error)
            else:
                self.streams.lost(stream, error)
        elif isinstance(event, worker_pb2.StreamHandedOver):
            self.streams.hand_over(stream)
        elif isinstance(event, StreamLost):
            self.streams.lost_connection(stream)
        elif isinstance(event, WorkerProbed):
            lost = self.streams.lost_worker if event.died else self.streams.lost
            lost(stream, worker_lost())

    def _on_finished(
        self, stream: WorkerStream, finished: worker_pb2.StreamFinished, events: list[Event]
    ) -> None:
        if stream.phase is Phase.PREFILL or stream.computes_prompt:
            stream.kv_wait_seconds = finished.kv_wait_seconds
        self.streams.ended(stream, finished.usage)
        self.streams.proven(stream)
        choices = range(self.request.n) if stream.phase is Phase.PREFILL else (stream.choice,)
        for choice, reason in zip(choices, finished.reasons, strict=False):
            output = self.outputs[choice]
            finish_reason = _FINISH_REASONS.get(reason)
            if output.reason is None and finish_reason is not None:
                events.append(output.end(finish_reason))
                events.append(_finished(output, output.reason or finish_reason))


def _finished(output: ChoiceOutput, reason: FinishReason) -> ChoiceFinished:
    return ChoiceFinished(output.choice, reason, output.stop_string, output.stop_token_id)
