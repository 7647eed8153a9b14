"""Admission, chunking, growth and preemption, without an engine."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.base import QueueFullError, SequenceRequest
from baton.engine.paged.group_pages import GroupPages
from baton.engine.paged.page_pool import PagePool
from baton.engine.paged.planning.plan import SchedulerLimits, StepPlan
from baton.engine.paged.scheduler import Scheduler
from baton.engine.paged.sequence import LiveSequence, SequenceState, open_sequence
from baton.engine.work_order import BY_ARRIVAL, WorkOrder
from baton.sampling import SamplingParams
from tests.support.engine.info import engine_info
from tests.support.examples import examples

BLOCK = 4
NOW = 0.0


class Bench:
    """A scheduler whose sequences draw the token 7 for ever."""

    def __init__(
        self,
        pages: int,
        max_running: int = 64,
        chunk_tokens: int = 64,
        decode_chunk: int = 64,
        paused_share: float = 0.25,
    ) -> None:
        self.pool = PagePool(pages)
        limits = SchedulerLimits(
            block_tokens=BLOCK,
            max_running=max_running,
            max_waiting=8,
            chunk_tokens=chunk_tokens,
            decode_chunk_tokens=decode_chunk,
            paused_share=paused_share,
        )
        layout = engine_info(BLOCK, context_tokens=pages * BLOCK, vocab_tokens=1000).layout
        self.scheduler = Scheduler(GroupPages(layout, [self.pool]), limits)
        self.pages = pages
        self.paused_pages = int(paused_share * pages)
        self.open: dict[int, LiveSequence] = {}
        self.finished: list[int] = []
        self.closed: set[int] = set()

    def add(
        self,
        prompt: list[int],
        max_tokens: int = 100,
        *,
        prefill_only: bool = False,
        expected_cached_tokens: int = 0,
        output: tuple[int, ...] = (),
        order: WorkOrder = BY_ARRIVAL,
        step_seconds: float = 0.0,
    ) -> LiveSequence:
        number = len(self.open)
        request = SequenceRequest(
            id=number,
            root=b"root",
            prompt=prompt,
            sampling=SamplingParams(max_tokens=max_tokens),
            prefill_only=prefill_only,
            expected_cached_tokens=expected_cached_tokens,
            output=output,
            order=order,
            step_seconds=step_seconds,
        )
        info = engine_info(BLOCK, context_tokens=self.pages * BLOCK, vocab_tokens=1000)
        sequence = open_sequence(request, number, NOW, info)
        self.scheduler.add(sequence, NOW)
        self.open[number] = sequence
        return sequence

    def admit(self, *, start: bool = True) -> list[int]:
        admitted = self.scheduler.admit(NOW)
        for sequence in admitted:
            if start and not sequence.started:
                self.scheduler.start(sequence, sequence.num_computed_tokens)
        return [sequence.id for sequence in admitted]

    def step(self) -> StepPlan:
        """One step as an engine does it."""
        self.admit()
        plan = self.scheduler.plan(NOW)
        for chunk in plan.chunks:
            samples = chunk.samples
            self.scheduler.advance(chunk)
            if samples:
                self._draw(chunk.sequence)
        return plan

    def _draw(self, sequence: LiveSequence) -> None:
        sequence.tokens.append(7)
        sequence.sampled_tokens += 1
        if sequence.request.prefill_only or len(sequence.tokens) >= sequence.length_limit:
            self.finished.append(sequence.id)
            self.scheduler.end(sequence, NOW)

    def pause(self, *sequences: LiveSequence) -> None:
        for sequence in sequences:
            sequence.paused = True

    def resume(self, *sequences: LiveSequence) -> None:
        for sequence in sequences:
            sequence.paused = False
            self.scheduler.resume(sequence, NOW)

    def close(self, sequence: LiveSequence) -> None:
        self.closed.add(sequence.id)
        self.scheduler.remove(sequence, NOW)

    def close_finished(self) -> None:
        for number in self.finished:
            if number not in self.closed:
                self.close(self.open[number])

    def check(self) -> None:
        """Every page is held exactly by those that have it in their tables."""
        tables = Counter(page for each in self.open.values() for page in each.pages)
        assert [self.pool.holders(page) for page in range(self.pages)] == [
            tables[page] for page in range(self.pages)
        ]
        kept = [each for each in self.open.values() if each.state is SequenceState.PAUSED]
        assert self.scheduler.paused == len(kept)
        assert sum(len(each.pages) for each in kept) <= self.scheduler.paused_pages
        assert self.scheduler.paused_pages <= self.paused_pages
        shared = {page for page, holders in tables.items() if holders > 1}
        for sequence in self.open.values():
            # Only full blocks that were named to the cache are shared, and under one key.
            for index, page in enumerate(sequence.pages):
                if page in shared:
                    assert self.pool.match([sequence.keys[index]]) == [page]


def test_decodes_come_first_and_a_chunk_fills_the_budget() -> None:
    bench = Bench(pages=64, chunk_tokens=20)
    bench.add([1])
    bench.step()
    bench.add(list(range(50)))
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(1, 2), (0, 19)]
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(2, 3), (19, 38)]
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(3, 4), (38, 50)]


def test_a_step_that_decodes_takes_the_smaller_chunk() -> None:
    bench = Bench(pages=64, chunk_tokens=20, decode_chunk=9)
    bench.add([1] * 30)
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(0, 20)]
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(20, 30)]
    bench.add([2] * 30)
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(30, 31), (0, 8)]
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(31, 32), (8, 16)]


def test_prompts_get_on_however_many_decode() -> None:
    bench = Bench(pages=64, chunk_tokens=2)
    for first in range(4):
        bench.add([first])
    bench.step()
    bench.add(list(range(100, 110)))
    assert [chunk.end - chunk.start for chunk in bench.step().chunks] == [1, 1, 1, 1, BLOCK]


@settings(max_examples=examples(60), deadline=None)
@given(
    orders=st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(0, 1), st.sampled_from([0.0, 9.0]), st.floats(0, 3)
        ),
        min_size=1,
        max_size=8,
    ),
    lengths=st.lists(st.integers(2, 40), min_size=8, max_size=8),
    chunk_tokens=st.integers(4, 50),
    max_running=st.sampled_from([1, 3, 64]),
    together=st.integers(1, 8),
)
def test_prompts_are_read_one_after_the_other_in_their_order(
    orders: list[tuple[int, int, float, float]],
    lengths: list[int],
    chunk_tokens: int,
    max_running: int,
    together: int,
) -> None:
    """However pages and chunks are: as a list that is sorted before each prompt begins, by classes
    first; only those of a higher class come between the chunks of one.
    """
    bench = Bench(pages=640, max_running=max_running, chunk_tokens=chunk_tokens)

    def turn(number: int) -> tuple[int, WorkOrder, int]:
        return orders[number][1], WorkOrder(*orders[number]), number

    read: list[int] = []
    expected: list[int] = []
    chunks: list[int] = []
    added = 0
    while len(bench.finished) < len(orders):
        for _ in range(together):
            if added < len(orders):
                prompt = [100 * added + at for at in range(lengths[added])]
                bench.add(prompt, prefill_only=True, order=WorkOrder(*orders[added]))
                added += 1
        for chunk in bench.step().chunks:
            number = chunk.sequence.id
            chunks.append(number)
            if number not in read:
                read.append(number)
                # With few places, those behind the ones that have pages cannot overtake them.
                if max_running > 8:
                    waiting = [one for one in range(added) if one not in expected]
                    expected.append(min(waiting, key=turn))
        bench.close_finished()
    for priority_class in (0, 1):
        own = [one for one in chunks if orders[one][1] == priority_class]
        assert list(dict.fromkeys(own)) == [one for one, _ in groupby(own)], "none is interrupted"
    if max_running > 8:
        assert read == expected
    assert sorted(read) == list(range(len(orders)))


def test_who_waits_for_pages_gets_them_by_order_and_resumed_streams_before_all() -> None:
    bench = Bench(pages=64, max_running=1)
    bench.add([1])
    bench.admit()
    bench.add([2], order=WorkOrder(key=5.0))
    bench.add([3], order=WorkOrder(tier=1))
    bench.add([4], order=WorkOrder(key=4.0))
    bench.add([5], order=WorkOrder(tier=9), output=(7,))
    bench.add([6], order=WorkOrder(tenant_lead=1.0, key=1.0))
    bench.add([7], order=WorkOrder(key=4.0))
    order: list[int] = []
    while len(order) < 6:
        bench.scheduler.remove(bench.open[order[-1] if order else 0], NOW)
        order += bench.admit()
    assert order == [4, 3, 6, 1, 5, 2]


def test_what_waits_and_is_expected_to_be_found_is_told_apart() -> None:
    bench = Bench(pages=64, max_running=1)
    first = bench.add([1], expected_cached_tokens=1)
    bench.step()
    bench.add(list(range(50)), expected_cached_tokens=32)
    bench.add(list(range(100, 110)))
    known = bench.add(list(range(200, 220)), expected_cached_tokens=1000)
    scheduler = bench.scheduler
    assert scheduler.pending_prompt_tokens() == 50 + 10 + 20
    assert scheduler.pending_cached_tokens() == 32 + 19, "the last token is computed"
    scheduler.remove(known, NOW)
    assert scheduler.pending_cached_tokens() == 32
    bench.close(first)
    bench.admit()
    assert scheduler.pending_cached_tokens() == 0, "what is admitted has what it found"


def test_a_preempted_sequence_is_expected_to_find_nothing() -> None:
    bench = Bench(pages=6)
    bench.add([1] * 4, max_tokens=18)
    bench.add([2] * 4, max_tokens=18, expected_cached_tokens=3)
    while not bench.step().preempted:
        pass
    assert bench.scheduler.waiting == 1
    assert bench.scheduler.pending_cached_tokens() == 0


def test_an_equal_prompt_waits_for_the_first_and_finds_its_blocks() -> None:
    bench = Bench(pages=64, chunk_tokens=8)
    prompt = list(range(18))
    first = bench.add(prompt)
    second = bench.add(prompt)
    third = bench.add([500, *prompt])
    assert bench.admit() == [first.id, third.id]
    for _ in range(10):
        bench.step()
    assert second.started
    assert second.cached_blocks == 4
    assert second.first_computed == 16
    assert second.pages[:4] == first.pages[:4]
    bench.check()


def test_a_longer_prompt_is_admitted_as_soon_as_the_shared_part_is_there() -> None:
    bench = Bench(pages=64, chunk_tokens=8)
    shared = list(range(8))
    first = bench.add([*shared, *range(100, 140)])
    second = bench.add([*shared, *range(200, 208)])
    bench.admit()
    assert second.state is SequenceState.WAITING
    bench.step()
    assert first.num_computed_tokens == 8
    assert bench.admit() == [second.id]
    assert second.cached_blocks == 2


def test_an_equal_prompt_goes_on_alone_when_the_first_is_cancelled() -> None:
    bench = Bench(pages=64)
    prompt = list(range(18))
    first = bench.add(prompt)
    second = bench.add(prompt)
    assert bench.admit(start=False) == [first.id]
    assert bench.admit(start=False) == []
    bench.close(first)
    assert bench.admit(start=False) == [second.id]
    assert second.cached_blocks == 0


def test_a_prefill_does_not_wait_for_a_decode_that_may_be_waiting_for_it() -> None:
    bench = Bench(pages=64)
    prompt = list(range(18))
    prepared = bench.add(prompt)
    assert bench.admit(start=False) == [prepared.id]
    prefill = bench.add(prompt, prefill_only=True)
    other = bench.add(prompt, prefill_only=True)
    another = bench.add(prompt)
    assert bench.admit(start=False) == [prefill.id]
    bench.scheduler.start(prefill, 0)
    bench.step()
    assert bench.finished == [prefill.id]
    assert bench.admit(start=False) == [other.id, another.id]
    assert other.cached_blocks == another.cached_blocks == 4
    bench.check()


def test_a_sequence_that_does_not_fit_holds_back_those_behind_it() -> None:
    bench = Bench(pages=4)
    first = bench.add([1] * 8, max_tokens=2)
    big = bench.add([2] * 12, max_tokens=1)
    small = bench.add([3] * 2, max_tokens=1)
    assert bench.admit(start=False) == [first.id]
    assert bench.admit(start=False) == []
    bench.close(first)
    assert bench.admit(start=False) == [big.id, small.id]


def test_the_queue_is_bounded() -> None:
    bench = Bench(pages=64, max_running=3)
    first = bench.add([1])
    for _ in range(10):  # 3 and 8 that wait beside them
        bench.add([1])
    for _ in range(2):
        with pytest.raises(QueueFullError):
            bench.add([1])
        bench.admit()  # those that run count as those that wait
    bench.close(first)
    bench.add([1])


def test_the_youngest_gives_way_and_the_oldest_finishes_first() -> None:
    bench = Bench(pages=6)
    old = bench.add([1] * 4, max_tokens=18)
    young = bench.add([2] * 4, max_tokens=18)
    preempted: list[int] = []
    while bench.scheduler.has_work():
        plan = bench.step()
        preempted.extend(each.id for each in plan.preempted)
        bench.check()
        bench.close_finished()
    assert set(preempted) == {young.id}
    assert bench.finished == [old.id, young.id]


def test_one_that_gave_way_comes_back_only_with_a_page_to_spare() -> None:
    bench = Bench(pages=6)
    old = bench.add([1] * 8)
    waiting = bench.add([3] * 4)
    bench.admit(start=False)
    bench.scheduler.start(old, 0)
    young = bench.add([2] * 8)
    assert bench.step().preempted == []
    assert bench.step().preempted == [young]
    bench.close(waiting)
    # Three pages are enough for the young one and would leave none to the old one.
    assert bench.pool.available == 3
    assert bench.admit() == []
    bench.close(old)
    assert bench.admit() == [young.id]


def test_what_was_planned_before_its_sequence_gave_way_is_not_computed() -> None:
    bench = Bench(pages=6)
    old = bench.add([1] * 4)
    assert bench.admit(start=False) == [old.id]
    young = bench.add([2] * 12)
    bench.step()
    old.tokens.extend([7] * 12)
    bench.scheduler.start(old, 4)
    plan = bench.scheduler.plan(NOW)
    assert plan.preempted == [young]
    assert [chunk.sequence for chunk in plan.chunks] == [old]


def test_a_prefill_is_never_preempted() -> None:
    bench = Bench(pages=8, chunk_tokens=4)
    decoding = bench.add([1] * 4, max_tokens=20)
    bench.step()
    prefill = bench.add([2] * 24, max_tokens=1, prefill_only=True)
    preempted: list[LiveSequence] = []
    for _ in range(12):
        preempted.extend(bench.step().preempted)
        bench.close_finished()
    assert prefill not in preempted
    assert decoding in preempted
    for _ in range(30):
        bench.step()
    assert bench.finished == [prefill.id, decoding.id]


BATCH = WorkOrder(priority_class=2)


def test_one_of_a_higher_class_takes_the_place_of_the_last_of_the_lowest() -> None:
    bench = Bench(pages=64, max_running=3)
    first, last = bench.add([1], order=BATCH), bench.add([2], order=BATCH)
    middle = bench.add([3], order=WorkOrder(priority_class=1))
    bench.step()
    urgent = bench.add([4])
    assert [chunk.sequence for chunk in bench.step().chunks] == [first, middle, urgent]
    assert (last.state, len(last.pages)) == (SequenceState.WAITING, 1)
    assert (bench.scheduler.running, bench.scheduler.waiting) == (3, 1)
    assert (bench.scheduler.outranked_now, bench.scheduler.outranked) == (1, 1)
    equal = bench.add([5], order=BATCH)
    bench.step()
    assert equal.state is SequenceState.WAITING, "equals wait for each other"
    bench.close(urgent)
    computed = last.forward_tokens
    assert last in [chunk.sequence for chunk in bench.step().chunks]
    assert last.forward_tokens == computed + 1, "nothing is computed again"
    bench.check()


def test_pages_of_a_lower_class_are_taken_only_if_they_suffice() -> None:
    bench = Bench(pages=8)
    line = bench.add([1] * 14, order=BATCH)
    kept = bench.add([2] * 7)
    bench.step()
    long = bench.add(list(range(100, 127)))
    bench.step()
    assert (long.state, line.state) == (SequenceState.WAITING, SequenceState.RUNNING)
    bench.close(long)
    short = bench.add(list(range(200, 210)))
    plan = bench.step()
    assert plan.preempted == [line]
    assert (line.state, line.pages) == (SequenceState.WAITING, [])
    assert {chunk.sequence for chunk in plan.chunks} == {kept, short}
    bench.check()


def test_a_decode_that_finds_no_page_takes_one_of_the_lowest_class() -> None:
    bench = Bench(pages=4)
    line = bench.add([1] * 7, order=BATCH)
    young = bench.add([2] * 7)
    while not (preempted := bench.step().preempted):
        pass
    assert preempted == [line]
    assert young.running


def test_prompts_of_a_higher_class_are_computed_first_and_in_larger_chunks() -> None:
    bench = Bench(pages=64, chunk_tokens=20, decode_chunk=8)
    decoding = bench.add([1], order=BATCH)
    bench.step()
    long = bench.add([2] * 30, order=BATCH)
    bench.step()
    urgent = bench.add([3] * 30)
    chunks = [(chunk.sequence, chunk.end - chunk.start) for chunk in bench.step().chunks]
    assert chunks == [(decoding, 1), (urgent, 19)], "a line does not wait for what is urgent"
    chunks = [(chunk.sequence, chunk.end - chunk.start) for chunk in bench.step().chunks]
    assert chunks == [(decoding, 1), (urgent, 11)]
    chunks = [(chunk.sequence, chunk.end - chunk.start) for chunk in bench.step().chunks]
    assert chunks == [(decoding, 1), (urgent, 1), (long, 6)]


def test_one_that_was_outranked_while_it_computed_its_prompt_is_not_waited_for() -> None:
    bench = Bench(pages=64, max_running=1, chunk_tokens=8)
    prompt = list(range(18))
    line = bench.add(prompt, order=BATCH)
    bench.step()
    urgent = bench.add(prompt)
    bench.step()
    assert urgent.running
    assert urgent.cached_blocks == 2
    bench.close(urgent)
    while not line.sampled_tokens:
        bench.step()
    assert line.num_computed_tokens == 18
    bench.check()


def test_a_prefill_is_not_outranked() -> None:
    bench = Bench(pages=64, max_running=1, chunk_tokens=8)
    prefill = bench.add(list(range(18)), prefill_only=True, order=BATCH)
    bench.step()
    urgent = bench.add([9])
    bench.step()
    assert prefill.running
    assert urgent.state is SequenceState.WAITING


def learn(bench: Bench) -> None:
    """Steps of 10 ms, 1 ms per sequence and 0.5 ms per prompt token; a long one took 100 ms."""
    bench.scheduler.planner.durations.append(0.1)
    for prompt, decoding in ((0, 1), (0, 9), (64, 0), (32, 4), (16, 8), (0, 3), (8, 2), (40, 5)):
        seconds = 0.01 + 0.001 * decoding + 0.0005 * prompt
        bench.scheduler.planner.costs.observe(prompt, decoding, seconds)


def test_lower_classes_take_what_is_left_of_a_step() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    lines = [bench.add([number], order=BATCH) for number in range(12)]
    bench.step()
    urgent = bench.add([99], step_seconds=0.0165)
    bench.step()
    learn(bench)
    bench.add([1] * 30, order=BATCH)
    chunks = bench.step().chunks
    assert [chunk.sequence for chunk in chunks] == [urgent, *lines[:5]], "and no prompt"
    planner = bench.scheduler.planner
    assert (planner.idle_room_offered, planner.idle_room_used) == (5, 5)
    assert bench.scheduler.running == 14, "they keep their places"
    bench.close(urgent)
    assert len(bench.step().chunks) == 13, "alone they have it all"


def test_prompts_of_lower_classes_take_whole_blocks_of_what_is_left() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    urgent = bench.add([99], step_seconds=0.018)
    bench.step()
    learn(bench)
    long = bench.add([1] * 60, order=BATCH)
    chunks = [(chunk.sequence, chunk.end - chunk.start) for chunk in bench.step().chunks]
    assert chunks == [(urgent, 1), (long, 12)], "14 tokens would fit"


def test_a_step_with_a_prompt_that_takes_longer_has_nothing_else() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    bench.add([1], order=BATCH)
    bench.step()
    learn(bench)
    urgent = bench.add([2] * 64, step_seconds=0.02)
    assert [chunk.sequence for chunk in bench.step().chunks] == [urgent]


def test_a_step_is_left_out_for_one_of_a_higher_class_that_was_admitted() -> None:
    bench = Bench(pages=256)
    other = bench.add([5], step_seconds=0.05)
    line = bench.add([1], order=BATCH)
    bench.step()
    learn(bench)
    urgent, scheduler = bench.add([2], step_seconds=0.05), bench.scheduler
    assert bench.admit(start=False) == [urgent.id]
    assert not scheduler.plan(NOW).chunks
    assert scheduler.awaits_start
    late = bench.add([3], step_seconds=0.05)
    assert bench.admit(start=False) == [late.id]
    chunks = scheduler.plan(NOW).chunks
    assert [chunk.sequence for chunk in chunks] == [other, line], "not twice in a row"
    assert not scheduler.awaits_start
    bench.add([4], order=BATCH)
    bench.admit(start=False)
    assert scheduler.plan(NOW).chunks, "an equal one is not waited for"


def test_a_step_takes_at_most_twice_what_its_streams_take() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    lines = [bench.add([number], order=BATCH) for number in range(20)]
    bench.step()
    urgent = bench.add([99], step_seconds=1.0)
    bench.step()
    learn(bench)
    chunks = bench.step().chunks
    assert [chunk.sequence for chunk in chunks] == [urgent, *lines[:10]], "just below 22 ms"
    other = bench.add([5] * 41, step_seconds=1.0)
    chunks = bench.step().chunks  # 32 ms with the prompt, and 5 % more
    assert [chunk.sequence for chunk in chunks] == [urgent, other, lines[0]]
    bench.close(other)
    urgent.request = replace(urgent.request, step_seconds=0.005)
    assert len(bench.step().chunks) == 1, "and no longer than the target"


def test_steps_that_are_all_alike_take_a_tenth_more() -> None:
    bench = Bench(pages=1024, chunk_tokens=64)
    lines = [bench.add([number], order=BATCH) for number in range(20)]
    bench.step()
    learn(bench)
    urgent = [bench.add([90 + number], step_seconds=1.0) for number in range(20)]
    for _ in range(60):
        bench.step()
    chunks = bench.step().chunks
    assert [chunk.sequence for chunk in chunks] == [*urgent, *lines[:2]], "of 33 ms, 30 its own"


def test_a_first_token_does_not_wait_for_the_next_prompt_next_to_lines() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    line = bench.add([1], order=BATCH)
    bench.step()
    learn(bench)
    first, second = (bench.add([2 + at] * 40, step_seconds=0.05) for at in range(2))
    assert [chunk.sequence for chunk in bench.step().chunks] == [first]
    assert [chunk.sequence for chunk in bench.step().chunks][:2] == [first, second]
    bench.close(line)
    bench.close(first)
    bench.close(second)
    two = [bench.add([7 + at] * 30, step_seconds=0.05) for at in range(2)]
    assert [chunk.sequence for chunk in bench.step().chunks] == two, "as they did without"


def test_a_prompt_of_class_batch_keeps_a_step_short_also_alone() -> None:
    bench = Bench(pages=256, chunk_tokens=64)
    learn(bench)
    line = bench.add([1] * 60, order=BATCH, step_seconds=0.02)
    (chunk,) = bench.step().chunks
    assert (chunk.start, chunk.end) == (0, 20)
    bench.close(line)
    bench.add([2] * 60, order=WorkOrder(priority_class=1), step_seconds=0.02)
    (chunk,) = bench.step().chunks
    assert (chunk.start, chunk.end) == (0, 60), "interactive is as it was"


def test_prompts_of_class_batch_alone_take_half_as_long_as_what_decodes() -> None:
    """Or more, up to the target: so places stay full where many decode."""
    bench = Bench(pages=256, chunk_tokens=64)
    for number in range(20):
        bench.add([number], order=BATCH, step_seconds=0.02)
    bench.step()
    learn(bench)
    line = bench.add([1] * 60, order=BATCH, step_seconds=0.02)
    chunks = bench.step().chunks
    assert len(chunks) == 21
    (chunk,) = [each for each in chunks if each.sequence is line]
    assert chunk.end == 28, "15 ms of 30: whole blocks"


def test_paused_sequences_keep_a_share_of_the_pages() -> None:
    bench = Bench(pages=16, paused_share=0.5)
    three = [bench.add([first] * 9) for first in range(3)]
    bench.step()
    bench.pause(*three)
    bench.step()
    # Three pages each are more than eight: the first one goes without.
    assert [len(each.pages) for each in three] == [0, 3, 3]
    assert (bench.scheduler.paused, bench.scheduler.paused_pages) == (3, 6)
    assert bench.scheduler.running == bench.scheduler.waiting == 0
    assert not bench.scheduler.has_work()
    # What kept its pages computes nothing again.
    bench.resume(*three)
    chunks = {chunk.sequence: (chunk.start, chunk.end) for chunk in bench.step().chunks}
    assert chunks == {three[0]: (8, 10), three[1]: (9, 10), three[2]: (9, 10)}


def test_paused_sequences_are_the_first_to_give_pages_up() -> None:
    bench = Bench(pages=8, paused_share=1.0)
    slow, slower = bench.add([1] * 7), bench.add([2] * 7)
    bench.step()
    bench.pause(slow)
    bench.step()
    bench.pause(slower)
    bench.step()
    assert (len(slow.pages), len(slower.pages)) == (2, 2)
    # Of a new sequence, one gives what it takes, the one that was paused first.
    other = bench.add([3] * 17)
    assert bench.step().preempted == [slow]
    # And of a token, before one that runs.
    preempted: list[LiveSequence] = []
    while len(other.tokens) <= 25:
        preempted += bench.step().preempted
    assert preempted == [slower]
    assert other.running
    bench.check()
    # Neither comes back before it is resumed; then it needs room like what was preempted.
    bench.resume(slow)
    bench.step()
    assert (slow.state, bench.scheduler.waiting) == (SequenceState.WAITING, 1)
    bench.close(other)
    bench.step()
    assert (slow.running, slower.state) == (True, SequenceState.PAUSED)


def test_a_resumed_sequence_waits_for_a_place_with_its_pages() -> None:
    bench = Bench(pages=16, max_running=1, paused_share=1.0)
    slow = bench.add([1] * 5)
    bench.step()
    bench.pause(slow)
    bench.step()
    other = bench.add([2] * 5, max_tokens=3)
    bench.step()
    bench.resume(slow)
    bench.step()
    assert (other.running, slow.state, len(slow.pages)) == (True, SequenceState.WAITING, 2)
    bench.step()
    assert bench.finished == [other.id]
    assert [(chunk.start, chunk.end) for chunk in bench.step().chunks] == [(5, 6)]
    bench.check()


@given(
    pages=st.integers(4, 12),
    chunk=st.integers(1, 9),
    max_running=st.integers(1, 4),
    paused_share=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    script=st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "step", "step", "close", "pause", "resume"]),
            st.integers(0, 2),
            st.integers(1, 15),
            st.integers(1, 12),
            st.booleans(),
        ),
        max_size=60,
    ),
)
@settings(max_examples=examples(60))
def test_every_sequence_ends_and_every_page_comes_back(
    pages: int,
    chunk: int,
    max_running: int,
    paused_share: float,
    script: list[tuple[str, int, int, int, bool]],
) -> None:
    bench = Bench(pages, max_running, chunk, paused_share=paused_share)
    idle_steps = 0
    for action, first, length, outputs, prefill in script:
        if action == "add":
            # Few kinds of prompt, so that many share blocks.
            prompt = [first] + [9] * (length - 1)
            with suppress(QueueFullError, ValueError):
                order = WorkOrder(priority_class=length % 3)
                bench.add(prompt, outputs, prefill_only=prefill, order=order)
        elif action == "close":
            victims = [each for number, each in bench.open.items() if number not in bench.closed]
            if victims:
                bench.close(victims[length % len(victims)])
        elif action in ("pause", "resume"):
            some = [each for number, each in bench.open.items() if number not in bench.closed]
            if some:
                (bench.pause if action == "pause" else bench.resume)(some[length % len(some)])
        else:
            bench.step()
        bench.check()
    bench.resume(*(each for number, each in bench.open.items() if number not in bench.closed))
    while len(bench.closed) < len(bench.open):
        before = sum(each.forward_tokens for each in bench.open.values())
        bench.step()
        bench.check()
        bench.close_finished()
        after = sum(each.forward_tokens for each in bench.open.values())
        idle_steps = 0 if after > before else idle_steps + 1
        assert idle_steps < 3, "nothing moves any more"
    assert bench.pool.available == pages
    assert bench.pool.claims == 0
    assert bench.scheduler.running == bench.scheduler.waiting == 0
    for number, sequence in bench.open.items():
        if number in bench.finished and not sequence.request.prefill_only:
            assert len(sequence.tokens) == sequence.length_limit
