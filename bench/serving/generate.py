"""Requests of the loads of `load.mixed` to a cluster."""

from collections.abc import AsyncGenerator

from baton.client import AsyncClient, Delta
from bench.serving.load.mixed import Generate


def greedy(client: AsyncClient, model: str) -> Generate:
    """Return a function that requests greedy outputs of an exact length."""

    async def generate(prompt: list[int], output: int) -> AsyncGenerator[int, None]:
        stream = client.generate(
            prompt, model=model, max_tokens=output, ignore_eos=True, temperature=0
        )
        async with stream:
            async for event in stream:
                if isinstance(event, Delta) and event.token_ids:
                    yield len(event.token_ids)

    return generate
