"""The engine around a runner: it implements the contract, and the runner computes."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from baton.engine.base import (
    Engine,
    EngineInfo,
    EngineStats,
    SequenceRequest,
    UnsupportedFeatureError,
)
from baton.engine.events import (
    BlocksEvicted,
    BlocksReady,
    CachedBlock,
    EndReason,
    Event,
    PromptScored,
)
from baton.engine.lora.adapter import Adapter, read_files
from baton.engine.paged.class_loads import class_loads
from baton.engine.paged.copies import BlockCopier
from baton.engine.paged.group_pages import GroupPages
from baton.engine.paged.guided import leave_out
from baton.engine.paged.page_pool import PagePool
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits
from baton.engine.paged.planning.step_room import HOLD_SECONDS
from baton.engine.paged.rates import EngineRates
from baton.engine.paged.reports import admitted, report_ended, report_sampled
from baton.engine.paged.runner import Runner
from baton.engine.paged.scheduler import Scheduler
from baton.engine.paged.sequence import LiveSequence, open_sequence
from baton.engine.sampling.draw import NotSampled, Sampled
from baton.structured.grammars import Grammars


class PagedEngine(Engine):
    """Schedules sequences over the pages of a runner. Owned by one thread, as of `Engine`."""

    def __init__(
        self,
        info: EngineInfo,
        runner: Runner,
        pages: int,
        limits: SchedulerLimits,
        clock: Callable[[], float] = time.monotonic,
        grammars: Grammars | None = None,
    ) -> None:
        """Prepare the engine.

        Args:
            info: whose `context_tokens` the pages must hold, so that a sequence fits alone.
            runner: owned from now on; `close_engine` closes it.
            pages: how many the runner has, in each group.
            limits: of the scheduler.
            clock: returns monotonic seconds.
            grammars: of the model; closed with the engine.
        """
        self.info = info
        self.grammars = grammars
        self.scratch = runner.allocate_scratch(info.block_bytes)
        self._runner = runner
        self._clock = clock
        self._block_tokens = limits.block_tokens
        sizes = info.object_bytes
        self._memory = [runner.memory_of(group) for group in range(len(sizes))]
        pools = [PagePool(pages) for _ in sizes]
        self._scheduler = Scheduler(GroupPages(info.layout, pools), limits)
        self._sequences: dict[int, LiveSequence] = {}
        self._adapters: set[str] = set()
        """Keys of added adapters."""
        self._copier = BlockCopier(self._sequences, self._memory, sizes)
        self._rates = EngineRates()
        self._pending: list[Event] = []
        """Events of calls since the last step, to be reported by the next one."""
        self._late: list[LiveSequence] = []
        """Sequences that sat out because their masks were late."""
        self._late_masks = 0
        self._order = 0
        self._computed_tokens = 0
        self._cached_tokens = 0

    def add(self, request: SequenceRequest) -> None:
        if request.id in self._sequences:
            raise ValueError(f"sequence {request.id} is open already")
        now = self._clock()
        adapters = self._adapters
        sequence = open_sequence(request, self._order, now, self.info, self.grammars, adapters)
        self._scheduler.add(sequence, now)
        self._sequences[request.id] = sequence
        self._order += 1

    def start(self, sequence_id: int, ready_tokens: int, output: Sequence[int] = ()) -> None:
        sequence = self._sequences[sequence_id]
        sequence.check_startable(ready_tokens, self._block_tokens)
        sequence.set_output(output, self.info.vocab_tokens)
        at = ready_tokens // self._block_tokens
        for memory, table in zip(self._memory, sequence.tables, strict=True):
            memory.clear(table[at:], kept_tokens=ready_tokens % self._block_tokens)
        self._scheduler.start(sequence, ready_tokens)
        self._scheduler.register(sequence)
        self._report_blocks(sequence, self._pending)

    def pause(self, sequence_id: int) -> None:
        self._sequences[sequence_id].paused = True  # handled by the next step that would compute it

    def resume(self, sequence_id: int) -> None:
        sequence = self._sequences[sequence_id]
        sequence.paused = False
        self._scheduler.resume(sequence, self._clock())

    def close(self, sequence_id: int) -> None:
        sequence = self._sequences.pop(sequence_id)
        self._copier.wait(sequence_id)
        self._scheduler.remove(sequence, self._clock())
        self._runner.forget(sequence_id)
        self._pending = [
            event
            for event in self._pending
            if isinstance(event, BlocksEvicted) or event.id != sequence_id
        ]

    def step(self) -> list[Event]:
        events, self._pending = self._pending, []
        began = self._clock()
        admitted = self._scheduler.admit(began)
        if self._late:
            self._late = leave_out(self._late, self._scheduler.computing)
        plan = self._scheduler.plan(began)
        for sequence in plan.preempted:
            self._copier.wait(sequence.id)
            self._runner.forget(sequence.id)
        for sequence in admitted:  # into pages from which no thread copies any more
            self._admitted(sequence, events)
        self._report_evicted(events)
        for group, pages in plan.fresh.items():
            self._memory[group].clear(pages)
        if plan.chunks:
            results = self._runner.run(plan.chunks)
            now = self._clock()
            prompt = 0
            decoding = 0
            for chunk, sampled in zip(plan.chunks, results, strict=True):
                count = chunk.end - chunk.start
                if count == 1:
                    decoding += 1
                else:
                    prompt += count
                self._computed(chunk, sampled, now, events)
            self._rates.observe(prompt, decoding, now - began)
            self._scheduler.planner.costs.observe(prompt, decoding, now - began)
        return events

    def hold_seconds(self) -> float:
        return HOLD_SECONDS if self._scheduler.awaits_start else 0.0

    def has_work(self) -> bool:
        return bool(self._pending) or self._scheduler.has_work()

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        return EngineStats(
            running=scheduler.running,
            waiting=scheduler.waiting,
            pending_prompt_tokens=scheduler.pending_prompt_tokens(),
            free_pages=scheduler.pages.available,
            total_pages=scheduler.pool.total,
            open_sequences=len(self._sequences),
            computed_tokens=self._computed_tokens,
            cached_tokens=self._cached_tokens,
            prefill_tokens_per_second=self._rates.prefill_tokens_per_second,
            decode_step_seconds=self._rates.decode_step_seconds,
            pending_cached_tokens=scheduler.pending_cached_tokens(),
            late_masks=self._late_masks,
            paused=scheduler.paused,
            paused_pages=scheduler.paused_pages,
            outranked=scheduler.outranked_now,
            outranked_total=scheduler.outranked,
            idle_room_offered=scheduler.planner.idle_room_offered,
            idle_room_used=scheduler.planner.idle_room_used,
            classes=class_loads(scheduler.sequences()),
        )

    def load_adapter(self, adapter: Adapter) -> Any:
        if self.info.adapter_limits is None:
            raise UnsupportedFeatureError("adapters")
        return self._runner.load_adapter(read_files(adapter))

    def add_adapter(self, key: str, loaded: Any) -> None:
        limits = self.info.adapter_limits
        if limits is None:
            raise UnsupportedFeatureError("adapters")
        if key in self._adapters:
            raise ValueError(f"adapter {key} was added already")
        if len(self._adapters) >= limits.slots:
            raise ValueError(f"all {limits.slots} slots have adapters: remove one first")
        self._runner.add_adapter(key, loaded)
        self._adapters.add(key)

    def remove_adapter(self, key: str) -> None:
        if any(one.request.adapter == key for one in self._sequences.values()):
            raise ValueError(f"adapter {key} is in use")
        self._adapters.remove(key)
        self._runner.remove_adapter(key)

    def keep_cuts(self, sequence_id: int, cuts: Sequence[int]) -> None:
        self._scheduler.pages.keep(self._sequences[sequence_id], cuts, self._clock())

    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int = 0
    ) -> None:
        self._copier.read(sequence_id, indexes, out, group)

    def write_blocks(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int = 0
    ) -> None:
        self._copier.write(sequence_id, indexes, data, group)

    def fill_blocks(
        self,
        sequence_id: int,
        indexes: Sequence[int],
        fill: Callable[[int, memoryview], None],
        group: int = 0,
    ) -> bool:
        with self._copier.writing(sequence_id, indexes, group) as pages:
            views = self._memory[group].page_views(pages)
            if views is None:
                return False
            for n, view in enumerate(views):
                fill(n, view)
        return True

    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        return self._scheduler.pool.idle_blocks(self._clock() - seconds)

    def evict_blocks(self, keys: Iterable[bytes] | None = None, idle_seconds: float = 0.0) -> int:
        chosen = None if keys is None else list(keys)
        until = self._clock() - idle_seconds
        first, *_ = [pool.evict_idle(chosen, until) for pool in self._scheduler.pages.pools]
        self._report_evicted(self._pending)
        return first

    def warm_up(self) -> None:
        self._runner.warm_up()

    def reset_stats(self) -> None:
        self._rates = EngineRates()
        self._computed_tokens = self._cached_tokens = self._late_masks = 0

    def close_engine(self) -> None:
        self._runner.close()
        if self.grammars is not None:
            self.grammars.close()

    def _admitted(self, sequence: LiveSequence, events: list[Event]) -> None:
        if sequence.started:
            for memory, table in zip(self._memory, sequence.tables, strict=True):
                memory.clear(table[sequence.cached_blocks :])
            return
        events.append(admitted(sequence, self._block_tokens))

    def _computed(
        self,
        chunk: ScheduledChunk,
        sampled: tuple[Sampled, ...] | NotSampled,
        now: float,
        events: list[Event],
    ) -> None:
        """Record the results of one chunk."""
        sequence = chunk.sequence
        first_time = sequence.first_computed is None
        self._scheduler.advance(chunk)
        self._computed_tokens += chunk.end - chunk.start
        if first_time:
            self._cached_tokens += sequence.cached_tokens
        if sequence.registered > sequence.reported:
            self._report_blocks(sequence, events)
        if sequence.scores_prompt:
            self._report_scored(sequence, events)
        if not sampled:
            if sequence.mask is not None:
                self._late.append(sequence)
                self._late_masks += 1
            return
        if isinstance(sampled, NotSampled):
            self._scheduler.end(sequence, now)
            given_up = (EndReason.ERROR,) * len(sequence.request.choices)
            report_ended(
                sequence, given_up, self.info.block_bytes, events, sampled.error, sampled.field
            )
            return
        reasons = report_sampled(sequence, sampled, events)
        if reasons is not None:
            self._scheduler.end(sequence, now)
            report_ended(sequence, reasons, self.info.block_bytes, events)

    def _report_scored(self, sequence: LiveSequence, events: list[Event]) -> None:
        scored = self._runner.take_prompt_logprobs(sequence.id)
        if scored:
            events.append(PromptScored(sequence.id, sequence.scored_tokens, scored))
            sequence.scored_tokens += len(scored)

    def _report_blocks(self, sequence: LiveSequence, events: list[Event]) -> None:
        first = sequence.reported
        keys = tuple(sequence.keys[first : sequence.registered])
        if keys:
            sequence.reported = sequence.registered
            events.append(BlocksReady(sequence.id, first, keys))

    def _report_evicted(self, events: list[Event]) -> None:
        for group, pool in enumerate(self._scheduler.pages.pools):
            keys = pool.take_evicted()
            if keys:
                events.append(BlocksEvicted(keys, group))
