"""Spans of requests that are not sampled: held until it is known whether their trace is kept."""

from collections import OrderedDict

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, TraceFlags

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Recorded(Sampler):
    """Records what another sampler drops, without sampling it: no other process exports it."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def should_sample(self, *args: object, **options: object) -> SamplingResult:
        result = self._inner.should_sample(*args, **options)  # type: ignore[arg-type]
        if result.decision is Decision.DROP:
            return SamplingResult(Decision.RECORD_ONLY, trace_state=result.trace_state)
        return result

    def get_description(self) -> str:
        return f"Recorded({self._inner.get_description()})"


def tail_sampler(ratio: float) -> Sampler:
    """Return a sampler of a share of new traces, which records the others of this process.

    A caller's decision is followed: what it does not sample is not recorded.
    """
    return ParentBased(
        _Recorded(TraceIdRatioBased(ratio)), local_parent_not_sampled=_Recorded(ALWAYS_OFF)
    )


class TailProcessor(SpanProcessor):
    """Passes on sampled spans at once, and others once the root of a kept trace ends.

    Args:
        inner: exports spans.
        max_spans: most spans held; those of the oldest trace are dropped.
    """

    def __init__(self, inner: SpanProcessor, max_spans: int) -> None:
        self._inner = inner
        self._max_spans = max_spans
        self._held: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        """Ended spans by trace."""
        self._count = 0
        self._kept: set[int] = set()
        """Traces to keep whose root has not ended."""

    def keep(self, trace_id: int) -> None:
        """Keep a trace whose root is about to end."""
        self._kept.add(trace_id)

    def on_start(self, span: Span, parent_context: object = None) -> None:
        """Do nothing: a span matters once it has ended."""

    def on_end(self, span: ReadableSpan) -> None:
        """Pass on a span, hold it, or end its trace if it is the root."""
        context = span.context
        if context is None:
            return
        if context.trace_flags.sampled:
            self._kept.discard(context.trace_id)
            self._inner.on_end(span)
            return
        self._held.setdefault(context.trace_id, []).append(span)
        self._count += 1
        if span.parent is None:
            spans = self._drop(context.trace_id)
            if context.trace_id in self._kept:
                self._kept.discard(context.trace_id)
                for one in spans:
                    self._inner.on_end(_sampled(one))
        while self._count > self._max_spans:
            self._drop(next(iter(self._held)))

    def shutdown(self) -> None:
        """Drop what is held, and export the rest."""
        self._held.clear()
        self._count = 0
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what was passed on."""
        return self._inner.force_flush(timeout_millis)

    def _drop(self, trace_id: int) -> list[ReadableSpan]:
        spans = self._held.pop(trace_id, [])
        self._count -= len(spans)
        return spans


def _sampled(span: ReadableSpan) -> ReadableSpan:
    """Return a span as it would be if its trace had been sampled: exporters skip others."""
    context = span.context
    if context is not None:
        state = context.trace_state
        context = SpanContext(context.trace_id, context.span_id, False, _SAMPLED, state)
    return ReadableSpan(
        name=span.name,
        context=context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
