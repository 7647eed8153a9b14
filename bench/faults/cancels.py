"""Clients that disconnect."""

import asyncio
import json
from contextlib import suppress

from bench.faults.scene import Scene

LONGEST_SECONDS = 0.3
"""The longest time of a stream of the simulated engine, including queue, prefill and a move."""


async def drop_streams(scene: Scene, count: int, *, at_once: int, pause_seconds: float = 0) -> int:
    """Start streams over HTTP and close each connection at a random moment; return their number.

    Args:
        scene: provides the frontends.
        count: number of streams.
        at_once: the most open streams.
        pause_seconds: pause between two consecutive streams.
    """
    left = 0
    limit = asyncio.Semaphore(at_once)

    async def begin_and_leave(number: int) -> None:
        nonlocal left
        body = {
            "model": "baton-tiny",
            "prompt": [scene.draw.randrange(3, 250) for _ in range(200)],
            "max_tokens": 64,
            "ignore_eos": True,
            "stream": True,
            "seed": number,
        }
        data = json.dumps(body).encode()
        port = scene.pick("frontend").http_port
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        async with limit:
            with suppress(OSError):  # a frontend that is down
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + data)
                await asyncio.sleep(scene.draw.uniform(0, LONGEST_SECONDS))
                writer.transport.abort()
                left += 1
            await asyncio.sleep(pause_seconds)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            async with limit:  # no more tasks than needed
                pass
            group.create_task(begin_and_leave(number))
            await asyncio.sleep(0)
    return left
