"""A burst begins a few requests at a time, in order; nobody waits for one that has left."""

import asyncio

from services.frontend.generation.turns import LoopTurns


class Burst:
    """Callers that wait for their turns, and the turn of the loop in which each had it."""

    def __init__(self, callers: int, per_turn: int, characters: int = 0) -> None:
        turns = LoopTurns(per_turn)
        self.begun: list[tuple[int, int]] = []
        """Number of the caller, and the turn."""
        self.turn = 0

        async def call(number: int) -> None:
            await turns.wait(characters)
            self.begun.append((number, self.turn))

        self.calls = [asyncio.create_task(call(number)) for number in range(callers)]

    async def end(self) -> None:
        while not all(call.done() for call in self.calls):
            self.turn += 1
            await asyncio.sleep(0)


async def test_a_burst_begins_in_order_and_a_few_at_a_time():
    burst = Burst(11, per_turn=3)
    await burst.end()
    assert [number for number, _ in burst.begun] == list(range(11))
    turns = [turn for _, turn in burst.begun]
    assert max(turns.count(turn) for turn in turns) == 3
    assert len(set(turns)) == 4


async def test_a_few_do_not_wait_and_neither_do_those_of_a_later_turn():
    turns = LoopTurns(2)
    for _ in range(3):
        waits = [turns.wait(), turns.wait()]
        for wait in waits:
            with_nothing_to_wait_for = asyncio.ensure_future(wait)
            await asyncio.sleep(0)
            assert with_nothing_to_wait_for.done()


async def test_one_that_left_takes_nobodys_turn():
    burst = Burst(6, per_turn=1)
    await asyncio.sleep(0)  # all have called, and the first has begun
    for number in (1, 2, 3):
        burst.calls[number].cancel()
    await burst.end()
    assert [number for number, _ in burst.begun] == [0, 4, 5]
    first, fourth, _ = (turn for _, turn in burst.begun)
    assert fourth - first <= 2


async def test_long_texts_count_as_several():
    burst = Burst(9, per_turn=32, characters=4096)
    await burst.end()
    turns = [turn for _, turn in burst.begun]
    assert [number for number, _ in burst.begun] == list(range(9))
    assert max(turns.count(turn) for turn in turns) == 2


async def test_one_that_counts_as_more_than_a_turn_has_begins_alone():
    burst = Burst(3, per_turn=2, characters=1_000_000)
    await burst.end()
    assert [number for number, _ in burst.begun] == [0, 1, 2]
    assert len({turn for _, turn in burst.begun}) == 3
