"""The fuzzer over sockets, a hundred inputs that are always the same."""

import asyncio
from io import StringIO

from bench.rpc.fuzz.sockets import SocketFuzzer


async def test_inputs_over_sockets():
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    try:
        async with SocketFuzzer(StringIO()) as sockets:
            for seed in range(0, 500, 100):
                await sockets.round(seed)
    finally:
        loop.set_exception_handler(handler)
    assert sockets.inputs == 100
