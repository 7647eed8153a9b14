"""A port whose connections a function serves, and which is always closed in the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[int]:
    """Listen on a port, which is yielded, until the context exits.

    A connection that a handler leaves open, for example because its test has ended, would be
    collected as garbage during another test and make that test fail.

    Args:
        serve: called for each connection; cancelled at the end.
        host: an address of this machine.
        options: options of `asyncio.start_server`.
    """
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass  # below; Python 3.11 would log an error for a cancelled task
        finally:
            handlers.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, host, 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(handlers)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
