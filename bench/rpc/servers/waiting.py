"""The tokens of a call, awaited, for servers whose handlers are tasks."""

import asyncio
from collections.abc import AsyncIterator, Hashable

from baton.v1.inference_pb2 import ChatRequest, ChatResponse
from bench.rpc.steps import Steps


async def tokens(steps: Steps, key: Hashable, request: ChatRequest) -> AsyncIterator[ChatResponse]:
    """Yield a call's tokens as the steps come."""
    waiting: list[tuple[ChatResponse, bool]] = []
    came = asyncio.Event()

    def on_token(message: ChatResponse, last: bool) -> None:
        waiting.append((message, last))
        came.set()

    steps.add(key, request, on_token)
    while True:
        await came.wait()
        came.clear()
        ready, waiting[:] = waiting[:], []
        for message, last in ready:
            yield message
            if last:
                return
