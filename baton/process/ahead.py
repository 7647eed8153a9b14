"""Items that are made while the one before is used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from baton.process.background import cancel_all

T = TypeVar("T")


@asynccontextmanager
async def ahead(items: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Make each item of an iterator while the one before is used, until the block ends."""
    making: asyncio.Task[T | None] | None = None

    async def following() -> T | None:
        return await anext(items, None)

    async def made() -> AsyncIterator[T]:
        nonlocal making
        making = asyncio.create_task(following())
        while (item := await making) is not None:
            making = asyncio.create_task(following())
            yield item

    try:
        yield made()
    finally:
        if making is not None:
            await cancel_all([making])
