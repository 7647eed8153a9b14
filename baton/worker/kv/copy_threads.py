"""Copies on threads, so that they do not block the asyncio loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(io: Executor, run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a copy in `io`. A cancelled caller waits until the copy has ended.

    Memory is therefore never released while a thread still reads or writes it.
    """
    future = asyncio.get_running_loop().run_in_executor(io, lambda: run(*args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
