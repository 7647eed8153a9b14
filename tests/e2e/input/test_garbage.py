"""What requests leave behind is freed as they end, and not by the garbage collector.

The collector looks at what has lived for a while once in many millions of objects: until then a
process would keep every prompt that it was sent.
"""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from baton.cluster.members.probe import liveness
from baton.rpc.channels import open_channel
from baton.v1 import inference_pb2, inference_pb2_grpc
from tests.support.engine.model import MODEL, prompt_of

REQUESTS = 20
OURS = ("baton.", "services.", "uvicorn.")
WAYS: dict[str, Callable[[Any], Awaitable[None]]] = {}


def way(function: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    WAYS[function.__name__] = function
    return function


@way
async def sessions(cluster: Any) -> None:
    async def ask(number: int) -> None:
        stream = cluster.client.generate(prompt_of(60, number), model=MODEL, max_tokens=4)
        await stream.answer()

    await asyncio.gather(*map(ask, range(REQUESTS)))


@way
async def calls(cluster: Any) -> None:
    channel = open_channel(cluster.frontend.address)
    stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)

    async def ask(number: int) -> None:
        request = inference_pb2.GenerateRequest()
        request.context.model = MODEL
        request.token_ids.ids.extend(prompt_of(60, number))
        request.sampling.max_tokens = 4
        async for _ in stub.Generate(request):
            pass

    await asyncio.gather(*map(ask, range(REQUESTS)))
    await channel.close(None)


@way
async def http(cluster: Any) -> None:
    await _http(cluster, max_tokens=4, until=b"[DONE]")


@way
async def http_clients_that_leave(cluster: Any) -> None:
    await _http(cluster, max_tokens=4000, until=b"data: {")


@way
async def probes(cluster: Any) -> None:
    services = (cluster.frontend, cluster.router, cluster.kvstore, *cluster.workers)
    for _ in range(REQUESTS):
        found = await asyncio.gather(*(liveness(one.address, "", 10) for one in services))
        assert set(found) == {"alive"}


async def _http(cluster: Any, *, max_tokens: int, until: bytes) -> None:
    port = int(cluster.frontend.instance.http_address.rpartition(":")[2])
    body = {"model": MODEL, "max_tokens": max_tokens, "stream": True, "ignore_eos": True}

    async def ask(number: int) -> None:
        data = json.dumps({**body, "prompt": prompt_of(60, number)}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await reader.readuntil(until)
        writer.transport.abort()

    await asyncio.gather(*map(ask, range(REQUESTS)))


def left_behind() -> Counter[str]:
    """What of ours only the collector frees, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        kinds = [type(thing) for thing in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    return Counter(name for name in names if name.startswith(OURS) and "_pb2" not in name)


@pytest.mark.parametrize("name", WAYS)
async def test_requests_leave_nothing_for_the_collector(local_cluster: Any, name: str) -> None:
    cluster = await local_cluster()
    await WAYS[name](cluster)
    await cluster.at_baseline()
    gc.collect()
    gc.disable()
    try:
        await WAYS[name](cluster)
        await cluster.at_baseline()
        many = {kind: count for kind, count in left_behind().items() if count >= REQUESTS}
    finally:
        gc.enable()
    assert many == {}
