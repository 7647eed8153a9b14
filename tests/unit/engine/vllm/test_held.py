"""What Baton tells vLLM's scheduler, without vLLM."""

from types import SimpleNamespace

import pytest

from baton.engine.base import QueueFullError, SequenceRequest
from baton.engine.paged.sequence import SequenceState, open_sequence
from baton.engine.vllm.groups.tables import FoundCut
from baton.engine.vllm.sequences.held import HeldSequences
from baton.engine.vllm.sequences.held_sequence import HeldSequence
from baton.engine.work_order import WorkOrder
from baton.sampling import SamplingParams
from tests.support.engine.info import engine_info

BLOCK = 4
PROMPT = tuple(range(10))


class Bench:
    """Sequences, with a clock that stands still and pages that are numbered."""

    def __init__(self, max_running: int = 4) -> None:
        self.preempted: list[tuple[str, tuple[int, ...]]] = []
        self.cleared: list[int] = []
        self.pages: dict[str, list[int]] = {}
        self.cuts: dict[str, FoundCut] = {}
        self.held = HeldSequences(max_running, clock=lambda: 0.0)
        self.held.block_tokens = BLOCK
        self.held.tables_of = lambda name: [self.pages[name]]
        self.held.cut_of = self.cuts.get
        self.held.on_preempted = lambda held, pages: self.preempted.append(
            (held.name, tuple(pages))
        )
        self.held.on_partial_page = lambda _group, page: self.cleared.append(page)
        self._order = 0

    def add(self, prompt: tuple[int, ...] = PROMPT, **fields: object) -> HeldSequence:
        options = {"root": b"root", "sampling": SamplingParams(max_tokens=4)} | fields
        request = SequenceRequest(self._order, prompt=prompt, **options)  # type: ignore[arg-type]
        sequence = open_sequence(request, self._order, 0.0, engine_info(BLOCK))
        made = SimpleNamespace(num_computed_tokens=0)
        one = HeldSequence(sequence, str(self._order), made, keeps_draws=False)
        self._order += 1
        self.held.add(one)
        return one

    def admit(self, one: HeldSequence, pages: list[int]) -> None:
        """Admit as vLLM does, with nothing in its cache."""
        assert one in self.held.take_next()
        assert self.held.match(one.name, 0) == (len(one.sequence.tokens), True)
        self.give(one, pages, loading=True)

    def give(self, one: HeldSequence, pages: list[int], *, loading: bool) -> None:
        """Give pages as vLLM does."""
        self.pages[one.name] = pages
        self.held.allocated(one.name, loading=loading)


def test_what_is_held_counts_as_running() -> None:
    bench = Bench(max_running=2)
    first, second, third = bench.add(), bench.add(range(20, 30)), bench.add(range(40, 50))
    assert bench.held.take_next() == [first, second]
    for one, pages in ((first, [1, 2, 3]), (second, [4, 5, 6])):
        bench.held.match(one.name, 0)
        bench.give(one, pages, loading=True)
    assert bench.held.take_next() == []
    assert (bench.held.running, bench.held.waiting) == (2, 1)
    bench.held.end(first)
    assert bench.held.take_next() == [third]


def test_those_that_wait_are_given_by_their_orders_and_equals_in_turn() -> None:
    bench = Bench(max_running=1)
    running = bench.add()
    bench.admit(running, [1, 2, 3])
    long, urgent = bench.add(order=WorkOrder(1, key=9.0)), bench.add(order=WorkOrder(0, key=99.0))
    first, second = bench.add(order=WorkOrder(1)), bench.add(order=WorkOrder(1))
    left = bench.add(order=WorkOrder())
    resumed = bench.add(order=WorkOrder(7), output=(1,))
    bench.held.remove(left)
    order = []
    while bench.held.has_backlog:
        bench.held.remove(order[-1] if order else running)
        order += bench.held.take_next()
    assert order == [resumed, urgent, first, second, long]


def test_one_computes_a_block_and_the_others_ask_again() -> None:
    bench = Bench()
    first, equal, other = bench.add(), bench.add(), bench.add(range(50, 60))
    bench.admit(first, [1, 2, 3])
    assert bench.held.match(equal.name, 0) == (None, False)
    assert bench.held.match(other.name, 0)[1]
    bench.held.start(first)
    bench.held.blocks_ready(first, 1)
    # It needs the second block first, which is still being computed.
    assert bench.held.match(equal.name, BLOCK) == (None, False)
    bench.held.remove(first)
    assert bench.held.match(equal.name, BLOCK) == (len(PROMPT) - BLOCK, True)


def test_a_prefill_does_not_wait_for_the_stream_that_waits_for_it() -> None:
    bench = Bench()
    bench.admit(bench.add(), [1, 2, 3])
    prefill = bench.add(prefill_only=True)
    assert bench.held.match(prefill.name, 0)[1]


def test_a_preempted_sequence_lets_its_pages_and_its_claims_go() -> None:
    bench = Bench()
    victim, equal = bench.add(), bench.add()
    bench.admit(victim, [1, 2, 3])
    bench.held.start(victim)
    bench.held.scheduled({}, [victim.name])
    assert bench.preempted == [(victim.name, (1, 2, 3))]
    assert (victim.sequence.state, victim.sequence.pages) == (SequenceState.WAITING, [])
    assert bench.held.match(equal.name, 0)[1]
    # It was accepted long ago: nothing is on its way for it.
    assert bench.held.match(victim.name, 0) == (0, False)


def test_the_page_of_a_prefill_s_partial_block_is_cleared_wherever_it_comes_from() -> None:
    bench = Bench()
    decode, prefill = bench.add(), bench.add(range(30, 40), prefill_only=True)
    bench.admit(decode, [1, 2, 3])
    assert bench.cleared == []
    bench.held.take_next()
    bench.held.match(prefill.name, 0)
    bench.give(prefill, [4, 5, 6], loading=True)
    assert bench.cleared == [6]
    # Nothing was in place: vLLM took the pages back, and gives others chunk by chunk.
    bench.held.start(prefill)
    bench.give(prefill, [7, 8], loading=False)
    assert bench.cleared == [6]
    prefill.request.num_computed_tokens = 8
    bench.pages[prefill.name] = [7, 8, 9]
    bench.held.scheduled({prefill.name: 2}, [])
    assert bench.cleared == [6, 9]


def test_a_paused_sequence_is_told_as_preempted_once() -> None:
    bench = Bench()
    slow = bench.add()
    bench.admit(slow, [1, 2, 3])
    bench.held.start(slow)
    bench.held.to_pause[slow.name] = slow
    assert bench.held.pause() == [], "no token came yet"
    slow.sequence.sampled_tokens = 1
    assert bench.held.pause() == [slow]
    assert bench.preempted == [(slow.name, (1, 2, 3))]
    counts = bench.held.running, bench.held.waiting, bench.held.paused
    assert (slow.sequence.state, counts) == (SequenceState.PAUSED, (0, 0, 1))
    # vLLM says so at its next step, in which the sequence may have got pages again.
    assert bench.held.resume(slow)
    bench.give(slow, [4, 5, 6], loading=False)
    bench.held.scheduled({slow.name: 1}, [slow.name])
    assert (slow.sequence.state, slow.sequence.pages) == (SequenceState.RUNNING, [4, 5, 6])
    assert not bench.held.resume(slow)
    bench.held.scheduled({}, [slow.name])
    assert slow.sequence.state is SequenceState.WAITING
    assert bench.held.paused == 0


def test_what_runs_and_what_waits_is_bounded_together() -> None:
    bench = Bench(max_running=2)
    first = bench.add()
    bench.add()
    bench.held.check_room(max_waiting=1)
    bench.add()
    for _ in range(2):
        with pytest.raises(QueueFullError):
            bench.held.check_room(max_waiting=1)
        if first.sequence.state is SequenceState.WAITING:
            bench.admit(first, [1])
    bench.held.end(first)
    bench.held.check_room(max_waiting=1)
