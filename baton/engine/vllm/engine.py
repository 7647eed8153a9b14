"""vLLM behind the engine contract: its EngineCore is stepped on the engine's thread."""

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
from baton.engine.events import CachedBlock, Event
from baton.engine.local import run_local
from baton.engine.lora.adapter import Adapter
from baton.engine.paged.class_loads import class_loads
from baton.engine.paged.copies import BlockCopier
from baton.engine.paged.rates import EngineRates
from baton.engine.paged.reports import admitted
from baton.engine.paged.sequence import LiveSequence, SequenceState, open_sequence
from baton.engine.pictures import PictureReader
from baton.engine.vllm.adapters.table import AdapterTable
from baton.engine.vllm.core import VllmCore
from baton.engine.vllm.pages import KvPages
from baton.engine.vllm.pictures import picture_features
from baton.engine.vllm.prefix_cache import PrefixCache
from baton.engine.vllm.registry import ADMISSIONS
from baton.engine.vllm.sequences.held import HeldSequences
from baton.engine.vllm.sequences.held_sequence import HeldSequence
from baton.engine.vllm.sequences.reports import StepReporter
from baton.engine.vllm.sequences.requests import (
    block_hasher,
    exact_params,
    native_params,
    priority,
    takes_argmax,
)
from baton.engine.vllm.sequences.sampled import Draws, SampledReader
from baton.kv.cuts import cut_rules
from baton.sampling import SamplingParams
from baton.structured.grammars import Grammars


class VllmEngine(Engine):
    """An EngineCore of vLLM, owned by one thread, as of `Engine`.

    Baton keeps a sequence for each of vLLM's requests, and updates it with the decisions of vLLM's
    scheduler as they are made, so that other threads read and write blocks without vLLM.
    """

    def __init__(
        self,
        info: EngineInfo,
        core: VllmCore,
        pages: KvPages,
        held: HeldSequences,
        engine_id: str,
        draws: Draws,
        adapters: AdapterTable | None = None,
        grammars: Grammars | None = None,
        pictures: PictureReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take ownership of the parts that `create_vllm_engine` created.

        Args:
            info: properties that do not change.
            core: owned from now on, as is `pages`.
            pages: from and to which blocks are copied.
            held: the sequences that the connector handles.
            engine_id: under which `registry` has `held`.
            draws: tokens that Baton's sampler sampled in addition to those that vLLM sees.
            adapters: with slots; None: there are no slots.
            grammars: of the model, shared with the sampler; None: grammars are not supported.
            pictures: of the model; None: it takes none.
            clock: returns monotonic seconds.
        """
        self.info = info
        self.grammars = grammars
        self.pictures = pictures
        self.scratch = pages.scratch
        self._core = core
        self._pages = pages
        self._held = held
        self._engine_id = engine_id
        self._adapters = adapters
        self._draws = draws
        self._clock = clock
        self._block_tokens = info.layout.block_tokens
        self._on_cpu = info.layout.backend == "cpu"
        self._rules = cut_rules(info.layout)
        self._weights = tuple(size / info.block_bytes for size in info.object_bytes)
        self._cache = PrefixCache(core, clock)
        self._open: dict[int, HeldSequence] = {}
        self._sequences: dict[int, LiveSequence] = {}
        self._copier = BlockCopier(self._sequences, pages.groups, info.object_bytes, self._holds)
        held.block_tokens = self._block_tokens
        held.tables_of = core.tables
        held.cut_of = core.found_cut
        held.on_preempted = self._preempted
        held.on_partial_page = self._clear_page
        self._rates = EngineRates()
        self._order = 0
        reader = SampledReader(draws)
        self._reports = StepReporter(info, core, held, self._cache, reader)

    # Commands.

    def add(self, request: SequenceRequest) -> None:
        if request.id in self._open:
            raise ValueError(f"sequence {request.id} is open already")
        if len(request.choices) > 1 and not self.info.exact_continuation:
            raise ValueError(
                "several choices require exact draws, which this engine does not support"
            )
        adapters = () if self._adapters is None else self._adapters.keys
        sequence = open_sequence(
            request, self._order, self._clock(), self.info, self.grammars, adapters
        )
        self._held.check_room(self.info.max_waiting)
        features = picture_features(request) if request.runs else ()
        name = f"{request.id}.{self._order}"
        exact, vocab = self.info.exact_continuation, self.info.vocab_tokens
        made = self._core.make_request(
            name,
            sequence.tokens,
            exact_params(sequence, name, vocab)
            if exact
            else native_params(sequence, vocab, on_cpu=self._on_cpu),
            block_hasher(sequence, self._block_tokens),
            self._order,
            priority(sequence),
            None if self._adapters is None else self._adapters.request(request.adapter),
            features,
        )
        self._order += 1
        if self.info.layout.groups:
            sequence.page_weights = self._weights
        held = HeldSequence(sequence, name, made, keeps_draws=exact and not takes_argmax(sequence))
        self._open[request.id] = held
        self._sequences[request.id] = sequence
        self._held.add(held)

    def start(self, sequence_id: int, ready_tokens: int, output: Sequence[int] = ()) -> None:
        held = self._open[sequence_id]
        sequence = held.sequence
        block = self._block_tokens
        sequence.check_startable(ready_tokens, block)
        known = len(sequence.tokens)
        sequence.set_output(output, self.info.vocab_tokens)
        if ready_tokens < sequence.context_tokens and not self.info.layout.groups:
            ready_tokens -= ready_tokens % block
        self._clear_written(held, -(-ready_tokens // block))
        self._core.resume(held.request, ready_tokens, sequence.tokens[known:])
        sequence.num_computed_tokens = ready_tokens
        self._held.start(held)
        self._held.blocks_ready(held, ready_tokens // block)
        sequence.reported = sequence.registered
        self._reports.unreported[held.name] = held

    def pause(self, sequence_id: int) -> None:
        held = self._open[sequence_id]
        held.sequence.paused = True
        self._held.to_pause[held.name] = held

    def resume(self, sequence_id: int) -> None:
        held = self._open[sequence_id]
        held.sequence.paused = False
        if self._held.resume(held):
            self._core.go_on(held.request)

    def close(self, sequence_id: int) -> None:
        held = self._open.pop(sequence_id)
        sequence = self._sequences.pop(sequence_id)
        self._copier.wait(sequence_id)
        if sequence.state is SequenceState.ADMITTED:
            self._clear_written(held, sequence.cached_blocks)
        if held.given:
            self._core.release(held.request)
        self._cache.released(page for table in sequence.tables for page in table)
        self._held.remove(held)
        self._reports.unreported.pop(held.name, None)
        if held.keeps_draws:
            self._draws.forget(held.name)

    # Steps.

    def step(self) -> list[Event]:
        events: list[Event] = []
        self._held.changed = False
        began = self._clock()
        for held in self._held.pause():
            self._core.pause(held.request)
        for held in self._held.outrank(self._core.free_pages):
            self._core.preempt(held.request)
        if self._held.has_classes:
            self._core.sort_running()
        for held in self._held.take_next():
            self._core.add(held.request, held.sequence.request.cut_tokens)
        outputs = self._core.step()
        now = self._clock()
        record = self._held.take_step()
        if record.scheduled or outputs:
            self._held.changed = True  # requests skipped because of a step in flight may continue
        events += [admitted(held.sequence, self._block_tokens) for held in record.admitted]
        self._reports.evicted(events)
        self._reports.unreported.update(record.scheduled)
        for held in list(self._reports.unreported.values()):
            self._reports.ready(held, events)
        for output in outputs:
            found = self._held.get(output.request_id)
            if found is not None:
                self._reports.output(found, output, events)
        if record.scheduled:
            self._rates.observe(record.chunked_tokens, record.decoding, now - began)
        return events

    def has_work(self) -> bool:
        if self._core.failed or self._core.has_work() or self._cache.has_evicted:
            return True
        return self._held.changed and (self._held.has_backlog or self._core.waits)

    def stats(self) -> EngineStats:
        held = self._held
        return EngineStats(
            running=held.running,
            waiting=held.waiting,
            pending_prompt_tokens=held.pending_prompt_tokens(),
            free_pages=self._core.free_pages,
            total_pages=self._core.total_pages,
            open_sequences=len(self._open),
            computed_tokens=held.computed_tokens,
            cached_tokens=held.cached_tokens,
            prefill_tokens_per_second=self._rates.prefill_tokens_per_second,
            decode_step_seconds=self._rates.decode_step_seconds,
            pending_cached_tokens=held.pending_cached_tokens(),
            paused=held.paused,
            outranked_total=held.outranked,
            classes=class_loads(held.sequences()),
        )

    # Adapters.

    def load_adapter(self, adapter: Adapter) -> Any:
        return self._added().load(adapter)

    def add_adapter(self, key: str, loaded: Any) -> None:
        self._added().add(key, loaded)

    def remove_adapter(self, key: str) -> None:
        if any(one.request.adapter == key for one in self._sequences.values()):
            raise ValueError(f"adapter {key} is in use")
        self._added().remove(key)

    def _added(self) -> AdapterTable:
        if self._adapters is None or self.info.adapter_limits is None:
            raise UnsupportedFeatureError("adapters")
        return self._adapters

    # Blocks, from any thread.

    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int = 0
    ) -> None:
        self._copier.read(sequence_id, indexes, out, group)

    def write_blocks(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int = 0
    ) -> None:
        held = self._open[sequence_id]
        held.written.update((group, index) for index in indexes)
        self._copier.write(sequence_id, indexes, data, group)

    def keep_cuts(self, sequence_id: int, cuts: Sequence[int]) -> None:
        held = self._open[sequence_id]
        rules = self._rules
        places = {
            (group, block)
            for cut in cuts
            for group, blocks in enumerate(rules.needed(cut))
            for block in blocks
            if not rules.is_full(group)
        }
        self._core.keep(held.request, places, min(cuts, default=0) if rules.ends_on_blocks else 0)

    def _holds(self, sequence_id: int, group: int, index: int, page: int) -> bool:
        held = self._open.get(sequence_id)
        return held is not None and self._core.holds_page(held.request, group, index, page)

    def _clear_written(self, held: HeldSequence, first: int) -> None:
        """Clear pages that were written but hold no valid KV, from block `first` on: as floats such
        bytes may be NaN, and kernels multiply masked values by zero.
        """
        tables = held.sequence.tables
        for group, index in held.written:
            if first <= index < len(tables[group]):
                self._clear_page(group, tables[group][index])

    def _clear_page(self, group: int, page: int) -> None:
        self._pages.groups[group].clear_page(page)

    def _preempted(self, held: HeldSequence, pages: Sequence[int]) -> None:
        self._copier.wait(held.sequence.id)
        self._core.lost_pages(held.request)
        self._cache.released(pages)

    # The prefix cache.

    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        return self._cache.idle_blocks(seconds)

    def evict_blocks(self, keys: Iterable[bytes] | None = None, idle_seconds: float = 0.0) -> int:
        return self._cache.evict(keys, idle_seconds)

    def warm_up(self) -> None:
        prompt = [0] * min(2 * self._block_tokens, self.info.context_tokens - 2)
        sampling = SamplingParams(temperature=1.0, max_tokens=2, ignore_eos=True)
        run_local(self, [SequenceRequest(-1, b"warm-up", prompt, sampling)])
        self.evict_blocks()
        while self.has_work():
            self.step()
        self.reset_stats()

    def reset_stats(self) -> None:
        self._rates = EngineRates()
        self._held.computed_tokens = self._held.cached_tokens = 0

    def close_engine(self) -> None:
        self._pages.close()
        self._core.close()
        ADMISSIONS.pop(self._engine_id, None)
