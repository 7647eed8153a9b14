"""Items are made one ahead, and what makes them ends with the block."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from baton.process.ahead import ahead


async def test_the_next_item_is_made_while_one_is_used() -> None:
    asked, used = asyncio.Event(), []

    async def items() -> AsyncIterator[int]:
        yield 1
        asked.set()
        yield 2

    async with ahead(items()) as found:
        async for item in found:
            await asked.wait()  # the first one is in use
            used.append(item)
    assert used == [1, 2]


async def test_a_failure_comes_after_the_items_before_it() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    used = []
    with pytest.raises(ValueError, match="no more"):
        async with ahead(items()) as found:
            async for item in found:
                used.append(item)
    assert used == [1]


async def test_what_makes_items_ends_with_the_block() -> None:
    ended = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with ahead(items()) as found:
        assert await anext(found) == 1
        await asyncio.sleep(0)  # the second one is being made
    assert ended.is_set()
