"""Caches, waiting lines and engines do what plain reference models and arithmetic say."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.model.cache import BlockCache
from simulator.model.costs import CostModel, Ordering
from simulator.model.engine import SimulatedEngine
from simulator.model.events import EventLoop
from simulator.model.step_times import StepTimes
from simulator.model.waiting_line import Job, SimulatedWaitingLine
from simulator.request import Request

CHAINS = st.lists(st.lists(st.integers(0, 11), max_size=6, unique=True), max_size=30)


def request(number: int = 0, prompt: int = 1000, output: int = 10) -> Request:
    return Request(number, 0.0, prompt, output, ())


def job(key: float = 0.0, ready: float = 0.0, *, work: float = 0.0, number: int = 0) -> Job:
    return Job(request(number), key, ready, work, 0, 0, work=work)


@given(CHAINS, st.integers(1, 8) | st.none())
def test_a_cache_is_a_list_of_blocks_by_last_use(
    chains: Sequence[Sequence[int]], capacity: int | None
) -> None:
    cache, naive = BlockCache(capacity), list[int]()
    for chain in chains:
        prefix = next((n for n, block in enumerate(chain) if block not in naive), len(chain))
        assert cache.prefix(chain) == prefix
        before = set(naive)
        naive = [block for block in naive if block not in chain] + list(chain)
        kept = naive if capacity is None else naive[-capacity:]
        added, evicted = cache.use(chain)
        assert set(added) == set(chain) - before
        assert evicted == naive[: len(naive) - len(kept)]
        naive = kept
        assert len(cache) == len(naive)
        assert all((block in cache) == (block in naive) for block in range(12))


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 20), st.integers(0, 3)),
        max_size=40,
    )
)
def test_a_waiting_line_is_sorted_by_key_of_what_is_ready(
    steps: Sequence[tuple[bool, int, int, int]],
) -> None:
    line, naive, now = SimulatedWaitingLine(), list[tuple[int, int, Job]](), 0.0
    for number, (take, key, ready, passed) in enumerate(steps):
        now += passed
        if take:
            ready_now = [one for one in naive if one[2].ready <= now]
            expected = min(ready_now, key=lambda one: one[:2])[2] if ready_now else None
            assert line.pop(now) is expected
            naive = [one for one in naive if one[2] is not expected]
            if expected is None and naive:
                assert line.next_ready() == min(one[2].ready for one in naive)
        else:
            one = job(key, float(ready))
            line.push(one, now)
            naive.append((key, number, one))
        assert len(line) == len(naive)


def test_shortest_first_lets_nobody_starve() -> None:
    order = Ordering("shortest", age=0.05)
    long_waited, just_come = order.key(20.0, arrival=0.0), order.key(1.0, arrival=390.0)
    assert long_waited < just_come
    assert order.key(20.0, arrival=0.0) > order.key(1.0, arrival=370.0)
    assert Ordering("fifo").key(20.0, arrival=1.0) < Ordering("fifo").key(1.0, arrival=2.0)


def test_costs_of_a_prompt() -> None:
    assert CostModel(prefill_rate=100).prefill_seconds(50, 80) == 0.5
    assert CostModel(prefill_rate=100).prefill_seconds(50, 80, speed=0.5) == 1.0
    # The mean context of the last 50 of 80 tokens is 55: each costs 1.55 times as much.
    quadratic = CostModel(prefill_rate=100, quadratic_tokens=100)
    assert quadratic.prefill_seconds(50, 80) == pytest.approx(0.5 * 1.55)


class Ends:
    """What an engine has finished, and when."""

    def __init__(self, costs: CostModel) -> None:
        self.loop = EventLoop()
        self.steps = StepTimes()
        self.at: dict[str, float] = {}
        self.engine = SimulatedEngine(
            costs,
            self.loop,
            self.steps,
            lambda job: self.at.setdefault(f"prefill {job.request.number}", self.loop.now),
            lambda one: self.at.setdefault(f"stream {one.number}", self.loop.now),
        )

    def prefill(self, at: float, number: int, tokens: int, work: float) -> None:
        self.loop.at(at, self.engine.prefill, job(work=work, number=number), tokens)

    def decode(self, at: float, number: int, output: int) -> None:
        self.loop.at(at, self.engine.decode, request(number, output=output))


def test_without_chunks_prompts_and_streams_do_not_delay_each_other() -> None:
    ends = Ends(CostModel(step_seconds=0.1))
    ends.decode(0.0, 1, output=10)
    ends.prefill(0.5, 2, tokens=4000, work=3.0)
    ends.loop.run()
    assert ends.at == {"stream 1": pytest.approx(1.0), "prefill 2": pytest.approx(3.5)}
    assert ends.steps.percentile(100) == pytest.approx(0.1)


def test_a_chunk_lengthens_the_steps_of_streams_and_they_the_prompt() -> None:
    ends = Ends(CostModel(step_seconds=0.1, stream_seconds=0.02, chunk_tokens=500))
    ends.decode(0.0, 1, output=100)
    ends.decode(0.0, 2, output=1000)
    # 8 chunks of 0.25 s, each beside a step of two streams, 0.12 s.
    ends.prefill(1.2, 3, tokens=4000, work=2.0)
    ends.loop.run()
    assert ends.at["prefill 3"] == pytest.approx(1.2 + 8 * 0.37)
    # 10 steps before it and 8 beside it, 82 after it; then 900 alone.
    assert ends.at["stream 1"] == pytest.approx(1.2 + 8 * 0.37 + 82 * 0.12)
    assert ends.at["stream 2"] == pytest.approx(ends.at["stream 1"] + 900 * 0.1)
    # 16 of 1,100 tokens were made beside a chunk.
    assert ends.steps.percentile(98) == pytest.approx(0.12)
    assert ends.steps.percentile(99) == pytest.approx(0.37)


def test_a_chunk_beside_streams_may_take_the_longer_of_both() -> None:
    costs = CostModel(step_seconds=0.03, stream_seconds=0.002, beside="longer")
    assert costs.mixed_step_seconds(0.05, 4) == pytest.approx(0.058)
    assert costs.mixed_step_seconds(0.01, 4) == pytest.approx(0.038)
    assert costs.mixed_step_seconds(0.01, 0) == 0.01
    assert CostModel(step_seconds=0.03).mixed_step_seconds(0.05, 1) == pytest.approx(0.08)


def test_a_stream_that_joins_slows_the_prompt_from_then_on() -> None:
    ends = Ends(CostModel(step_seconds=0.5, chunk_tokens=100))
    ends.prefill(0.0, 1, tokens=1000, work=10.0)
    ends.decode(5.0, 2, output=2)
    ends.loop.run()
    # 5 chunks of 1 s alone, 2 of 1.5 s beside the stream's two tokens, 3 alone.
    assert ends.at == {"stream 2": pytest.approx(8.0), "prefill 1": pytest.approx(11.0)}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=12))
def test_streams_end_when_a_simulation_of_every_step_says(
    streams: Sequence[tuple[int, int]],
) -> None:
    # All streams of a step share its duration, so time in steps of one stream is exact here.
    ends = Ends(CostModel(step_seconds=0.25))
    for number, (at, output) in enumerate(streams):
        ends.decode(at * 0.25, number, output)
    ends.loop.run()
    assert ends.at == {
        f"stream {number}": pytest.approx((at + output) * 0.25)
        for number, (at, output) in enumerate(streams)
    }
    assert ends.engine.streams == 0


@given(st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 9)), max_size=20))
def test_a_percentile_of_step_times_is_that_of_all_tokens(
    steps: Sequence[tuple[float, int]],
) -> None:
    times, tokens = StepTimes(), list[float]()
    for seconds, count in steps:
        times.add(seconds, count)
        tokens += [round(seconds, 5)] * count
    tokens.sort()
    for percent in (0.1, 50, 99, 100):
        rank = max(0, -int(-len(tokens) * percent // 100) - 1)
        expected = tokens[rank] if tokens else 0.0
        assert times.percentile(percent) == pytest.approx(expected)


def test_functions_of_one_moment_run_in_the_order_they_were_given() -> None:
    loop, ran = EventLoop(), list[str]()
    loop.at(2.0, ran.append, "c")
    loop.at(1.0, ran.append, "a")
    loop.at(1.0, lambda: loop.at(0.5, ran.append, "late"))
    loop.at(1.0, ran.append, "b")
    loop.run()
    assert ran == ["a", "b", "late", "c"]
    assert loop.now == 2.0
