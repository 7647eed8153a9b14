"""Life cycle of one stream: admit, fetch, start, publish, release."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

from opentelemetry import trace

from baton.engine.base import Engine, QueueFullError, SequenceRequest
from baton.engine.events import (
    Admitted,
    BlocksReady,
    Event,
    PromptScored,
    SampledTokens,
    SequenceEnded,
)
from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.request.room import output_reserve
from baton.structured.errors import GrammarsBusyError
from baton.structured.grammars import Grammars
from baton.telemetry.context import request_id
from baton.telemetry.logs import get_logger
from baton.telemetry.tracing import extract, tracer
from baton.worker.adapters.use import AdapterUse
from baton.worker.convert import (
    engine_failure,
    failed_frame,
    finished_frame,
    handed_over_frame,
    prepared_frame,
    prompt_logprobs_frame,
    refused,
)
from baton.worker.engine_loop import EngineFailedError, EngineLoop
from baton.worker.kv.cut_fetch import CutFetch
from baton.worker.kv.fetch import FetchResult, SequenceFetch
from baton.worker.kv.fetch_plan import plan_fetch
from baton.worker.kv.publish import KvPublisher, SequencePublish
from baton.worker.pictures import PictureThread
from baton.worker.stream.cuts import StreamCuts
from baton.worker.stream.handover import HandedOverError, Handover
from baton.worker.stream.pause import SequencePause
from baton.worker.stream.probation import Probation
from baton.worker.stream.reserved import StreamPages

E = TypeVar("E")

log = get_logger(__name__)


class FrameSink(Protocol):
    """Destination of a stream's frames: its frontend's session."""

    def send(self, frame: worker_pb2.FrameFromWorker) -> None: ...
    def add_tokens(self, stream_id: int, tokens: SampledTokens) -> None: ...


class WorkStream:
    """One Start of a frontend, until its StreamFinished, StreamFailed or StreamHandedOver.

    Lives on the asyncio loop as one task, bounded by the Start's timeout. However it ends, it
    releases its sequence in the engine and its blocks queued for publishing, calls `on_ended`, and
    sends its last frame, in this order.
    """

    def __init__(
        self,
        start: worker_pb2.Start,
        request: SequenceRequest,
        engine_loop: EngineLoop,
        block_tokens: int,
        fetch: SequenceFetch | CutFetch,
        publisher: KvPublisher,
        publishing: SequencePublish,
        cuts: StreamCuts | None,
        sink: FrameSink,
        on_ended: Callable[["WorkStream"], None],
        kv_wait_seconds: float,
        default_timeout: float,
        exact_continuation: bool,
        suspects: asyncio.Lock,
        grammars: Grammars | None,
        pictures: PictureThread,
        adapter: AdapterUse | None = None,
    ) -> None:
        self._probation = Probation(suspects, start, sink.send)
        self._kv_wait_seconds = kv_wait_seconds
        self._default_timeout = default_timeout
        self._exact_continuation = exact_continuation
        self.stream_id = start.stream_id
        self.sequence_id = request.id
        self.ticket = start.ticket
        self._start = start
        self._request = request
        self._engine = engine_loop
        self._block_tokens = block_tokens
        self._fetch = fetch
        self._grammars = grammars
        self._pictures = pictures
        self._adapter = adapter
        """Its adapter, which stays in the engine's memory until the sequence is closed."""
        self._publisher = publisher
        self._publishing = publishing
        self._cuts = cuts
        """What to fetch and publish, where KV has groups; None: it has none."""
        self._sink = sink
        self._on_ended = on_ended
        self._begun = False
        self._added = False
        self._steps_before: float = math.inf
        """Number of completed engine steps when the engine received the sequence."""
        self._cancelled = False
        self._computing = False
        self._unread = False
        """Whether its frontend has no space for tokens."""
        self._pause = SequencePause(engine_loop, request.id)
        self._handover: Handover | None = None
        """Pending handover to another worker."""
        self._leaving: asyncio.Task[None] | None = None
        self._closing = False
        self._first_unpublished = 0
        self._position = len(request.output)
        """Number of output tokens so far."""
        self._reserved_until = self._position
        """Output position up to which it is counted from its beginning."""
        if not request.prefill_only:
            self._reserved_until += output_reserve(request.sampling.max_tokens or 0, self._position)
        self._sampled = False
        self._span: trace.Span = trace.INVALID_SPAN
        loop = asyncio.get_running_loop()
        self._admitted: asyncio.Future[Admitted] = loop.create_future()
        self._generate_signal: asyncio.Future[Sequence[int]] = loop.create_future()
        self._ended: asyncio.Future[SequenceEnded | None] = loop.create_future()
        """End of the sequence; None: it is handed over."""
        self._task = loop.create_task(self._run())

    @property
    def counted(self) -> bool:
        """Whether the engine's stats of the last delivered step include the sequence."""
        return self._engine.steps_delivered > self._steps_before

    @property
    def ended(self) -> bool:
        """Whether its sequence has ended, and only publishing and closing remain."""
        return self._ended.done()

    @property
    def paused(self) -> bool:
        """Whether its frontend has paused it: then it neither runs nor waits."""
        return self._pause.wanted

    @property
    def pages(self) -> StreamPages:
        """Pages for which it is counted."""
        return StreamPages(
            self.ticket or self._start.context.request_id,
            len(self._request.prompt) + self._position,
            max(0, self._reserved_until - self._position),
            self._admitted.done(),
        )

    # Called by the session.

    def generate(self, frame: worker_pb2.Generate) -> None:
        """Begin decoding once the KV is in place."""
        _resolve(self._generate_signal, tuple(frame.output_so_far))

    def update_sources(self, frame: worker_pb2.UpdateSources) -> None:
        """Replace the sources of the fetch, or end its wait."""
        if frame.prefill_done:
            self._fetch.prefill_done()
        else:
            self._fetch.replace_sources(frame.sources)

    def begun_acknowledged(self) -> None:
        """Submit a suspect stream to the engine: its frontend knows that it begins."""
        self._probation.acknowledged()

    def pause(self) -> None:
        """Pause the sequence, as of `Engine.pause`: its tokens are not being read."""
        self._unread = True
        self._pause_if_proven()

    def resume(self) -> None:
        """Resume the sequence."""
        self._unread = False
        self._pause.set(False)

    def cancel(self) -> None:
        """Release everything and send Failed(CANCELLED), unless the stream has ended."""
        if not self._cancelled and not self._closing:
            self._cancelled = True
            # A task that is cancelled before its first step never takes that step.
            if self._begun:
                self._task.cancel()

    def hand_over(self) -> None:
        """Hand over the stream to another worker as soon as its computed KV is in the store.

        A sampled stream that no other worker would continue identically stays:
        `exact_continuation`.
        """
        if self._cancelled or self._closing or self._handover is not None:
            return
        if self._sampled and not self._exact_continuation and not self._request.prefill_only:
            return
        tokens = len(self._request.prompt) + self._position
        self._handover = Handover(self._publishing, self._block_tokens, tokens)
        if self._pause.wanted:
            self._handover.pause()
        if self._computing:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(self._handover))
        else:
            self.cancel()

    async def wait_closed(self) -> None:
        """Return when all resources have been released."""
        await asyncio.wait([self._task])

    # Called with the engine's events.

    def on_event(self, event: Event) -> None:
        """Handle an event of the stream's sequence."""
        match event:
            case SampledTokens():
                if self._probation.left:
                    if not self._sampled:
                        self._sampled = True
                        self._span.add_event("first_token")
                    self._probation.sampled(len(event.token_ids))
                    if self._unread:
                        self._pause_if_proven()
                self._position = event.position + len(event.token_ids)
                if self._handover is not None:
                    self._handover.sampled(len(self._request.prompt) + self._position)
                self._sink.add_tokens(self.stream_id, event)
            case BlocksReady():
                self._publish(event)
            case PromptScored():
                self._sink.send(prompt_logprobs_frame(self.stream_id, event))
            case Admitted():
                _resolve(self._admitted, event)
            case SequenceEnded():
                if self._cuts is not None and not (self._cancelled or self._closing):
                    self._cuts.ended()
                _resolve(self._ended, event)

    @property
    def first_held(self) -> Sequence[int]:
        """First block of each group that the engine has since the sequence began; empty: one
        group.
        """
        return () if self._cuts is None else self._cuts.first_held

    def full_keys(self, ready: BlocksReady) -> tuple[bytes, ...]:
        """Return the keys of full blocks among those reported."""
        return ready.keys[:-1] if self._ends_partial(ready) else ready.keys

    def _pause_if_proven(self) -> None:
        if not self._probation.unproven:
            self._pause.set(True)
            if self._handover is not None:
                self._handover.pause()

    def _publish(self, ready: BlocksReady) -> None:
        # A prefill worker also commits blocks that it did not compute: its reader waits for every
        # block. A decode worker skips blocks that it has just fetched.
        skip = max(0, self._first_unpublished - ready.first_index)
        keys = ready.keys[skip:]
        # Blocks that become ready after the end was decided are not read: the sequence closes.
        if not keys or self._cancelled or self._closing:
            return
        if self._cuts is not None:
            self._cuts.ready(ready, partial=self._ends_partial(ready))
            return
        first = ready.first_index + skip
        self._publisher.add(self._publishing, first, keys, partial=self._ends_partial(ready))

    def _ends_partial(self, ready: BlocksReady) -> bool:
        end = (ready.first_index + len(ready.keys)) * self._block_tokens
        return self._request.prefill_only and end > len(self._request.prompt)

    # The task.

    async def _run(self) -> None:
        self._begun = True
        request_id.set(self._start.context.request_id)
        timeout = self._start.timeout.ToNanoseconds() / 1e9 or self._default_timeout
        kind = self._start.WhichOneof("work") or "work"
        caller = extract(self._start.traceparent)
        with tracer().start_as_current_span(kind, caller, trace.SpanKind.SERVER) as span:
            span.set_attribute("baton.request_id", self._start.context.request_id)
            span.set_attribute("baton.choice", self._start.choice)
            self._span = span
            try:
                async with asyncio.timeout(timeout):
                    frame = await self._work(span)
            except TimeoutError:
                late = f"the work did not complete within {timeout:.1f} s"
                frame = failed_frame(self.stream_id, BatonError(Reason.DEADLINE, late))
            except HandedOverError:
                frame = handed_over_frame(self.stream_id, self._position)
            except BatonError as error:
                frame = failed_frame(self.stream_id, error)
            except EngineFailedError:
                lost = BatonError(Reason.WORKER_LOST, "the engine of this worker failed")
                frame = failed_frame(self.stream_id, lost)
            except asyncio.CancelledError:
                cancelled = BatonError(Reason.CANCELLED, "cancelled by the caller")
                frame = failed_frame(self.stream_id, cancelled)
                if self._handover is not None:
                    frame = handed_over_frame(self.stream_id, self._position)
            except Exception:
                log.exception("worker.stream.failed")
                failure = BatonError(Reason.INTERNAL, "the worker failed")
                frame = failed_frame(self.stream_id, failure)
            await self._release()
        if frame.HasField("handed_over"):  # steps may have been in progress
            frame.handed_over.position = self._position
        self._on_ended(self)
        self._sink.send(frame)

    async def _work(self, span: trace.Span) -> worker_pb2.FrameFromWorker:
        if self._cancelled:
            raise asyncio.CancelledError
        try:
            grammar = self._request.sampling.grammar
            if grammar is not None and self._grammars is not None:
                # Done here, so that the engine's step need not wait for it.
                await self._grammars.check(grammar)
            if self._adapter is not None:
                await self._adapter.begin()
                span.add_event("adapter.in_memory")
            if self._request.runs:
                read = await self._pictures.read([each.data for each in self._start.pictures])
                self._request = replace(self._request, pictures=read)
            if self._cuts is not None:
                admitted, fetched = await self._cuts.admit(self._add_with_cut)
                ready = admitted.ready_tokens
            else:
                await self._engine.call(self._add)
                admitted = await self._admitted
                span.add_event("admitted")
                fetched = await self._fetch_kv(admitted)
                context_tokens = len(self._request.prompt) + len(self._request.output)
                found = admitted.cached_tokens + fetched.blocks * self._block_tokens
                ready = min(context_tokens, found)
        except (GrammarsBusyError, QueueFullError, ValueError) as error:
            raise refused(error) from error
        span.add_event("kv.in_place")
        if not self._request.prefill_only:
            # A last block that arrived partly filled is published once it is full.
            self._first_unpublished = 0 if self._cuts else ready // self._block_tokens
            self._sink.send(prepared_frame(self.stream_id, admitted, fetched, ready))
        output = await self._generate_signal if self._start.HasField("prepare") else ()

        self._position = max(self._position, len(output))

        def start(engine: Engine) -> int:
            if self._cuts is not None:
                self._cuts.keep(engine)
            engine.start(self.sequence_id, ready, output)
            return time.time_ns()

        async with self._probation.begin(self._ended):
            self._computing = True
            # The time is taken on the engine's thread: its first step may end before this
            # continues.
            span.add_event("started", timestamp=await self._engine.call(start))
        ended = await self._ended
        if ended is None:
            raise HandedOverError
        if given_up := engine_failure(ended):
            log.error("worker.sequence.failed", error=ended.error)
            raise given_up
        await self._publishing.wait_done()
        span.add_event("kv.published")
        span.set_attribute("baton.computed_tokens", ended.computed_tokens)
        span.set_attribute("baton.cached_tokens", ended.cached_tokens)
        span.set_attribute("baton.fetched_bytes", fetched.bytes)
        copying = fetched.copy_cpu_seconds + self._publishing.copy_cpu_seconds
        span.set_attribute("baton.copy_cpu_seconds", copying)
        span.set_attribute("baton.published_bytes", self._publishing.bytes)
        prompt_tokens = len(self._request.prompt)
        return finished_frame(self.stream_id, ended, prompt_tokens, fetched.wait_seconds)

    async def _add_with_cut(self, cut_tokens: int) -> Admitted:
        """Add the sequence, or add it again with a smaller cut; return its admission."""
        self._request = replace(self._request, cut_tokens=cut_tokens)
        self._admitted = asyncio.get_running_loop().create_future()
        await self._engine.call(self._add)
        return await self._admitted

    def _add(self, engine: Engine) -> None:
        if self._added:
            self._added = False
            engine.close(self.sequence_id)
        engine.add(self._request)
        self._added = True
        if self._pause.wanted:
            self._pause.apply(engine)
        self._steps_before = self._engine.steps

    async def _fetch_kv(self, admitted: Admitted) -> FetchResult:
        assert isinstance(self._fetch, SequenceFetch)
        plan = plan_fetch(
            self._start, self._request, admitted, self._block_tokens, self._kv_wait_seconds
        )
        if not plan.keys:
            return FetchResult()
        with tracer().start_as_current_span("kv.get", kind=trace.SpanKind.CLIENT) as span:
            result = await self._fetch.run(admitted, plan)
            span.set_attribute("baton.blocks_wanted", len(plan.keys))
            span.set_attribute("baton.blocks", result.blocks)
            span.set_attribute("baton.bytes", result.bytes)
            span.set_attribute("baton.transport", result.transport)
        return result

    async def _leave(self, handover: Handover) -> None:
        await handover.wait(decodes=not self._request.prefill_only)
        if self._cuts is not None:
            await self._cuts.hand_over()
        _resolve(self._ended, None)

    async def _release(self) -> None:
        self._closing = True
        if self._leaving is not None:
            self._leaving.cancel()
        self._publisher.cancel(self._publishing)
        await self._publishing.wait_done()

        def close(engine: Engine) -> None:
            if self._added:
                engine.close(self.sequence_id)

        # A failed engine is closed as a whole.
        with suppress(EngineFailedError):
            await self._engine.call(close)
        if self._adapter is not None:
            await self._adapter.end()


def _resolve(future: asyncio.Future[E], value: E) -> None:
    if not future.done():
        future.set_result(value)
