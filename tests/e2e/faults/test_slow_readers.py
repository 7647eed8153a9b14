"""A client stops reading for a while: it gets all of its tokens, whatever became of its workers."""

import asyncio
import json
import socket
from typing import Any

import pytest

from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

CHOICES = 8
OUTPUT_TOKENS = 800
"""Of each choice; the events of all of them are more than sockets and buffers on the way take."""


async def ask(
    cluster: LocalCluster, receive_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a streamed answer, on a socket that takes so much ahead; nothing is read yet."""
    host, port = cluster.http.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=client, limit=4096)
    body: dict[str, Any] = {"model": MODEL, "prompt": prompt_of(150, 1), "n": CHOICES, "seed": 3}
    body |= {"max_tokens": OUTPUT_TOKENS, "ignore_eos": True, "stream": True}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + data)
    return reader, writer


async def texts_of(reader: asyncio.StreamReader) -> dict[int, str]:
    """Read a streamed answer to its end."""
    texts = dict.fromkeys(range(CHOICES), "")
    while line := await reader.readline():
        if line == b"data: [DONE]\n":
            return texts
        if line.startswith(b"data: "):
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] += choice["text"]
    raise AssertionError("the answer broke off")


@pytest.mark.parametrize("killed", [False, True], ids=["paused", "its-worker-killed"])
async def test_a_client_that_stops_for_a_while_gets_all_tokens(
    local_cluster: Any, killed: bool
) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True,
        decode=2,
        processes=("decode-0", "decode-1") if killed else (),
        settings={"engine.sim_decode_step_seconds": 0.001},
    )
    reader, writer = await ask(cluster, 1 << 20)
    expected = await texts_of(reader)
    writer.close()

    reader, writer = await ask(cluster, 4096)

    async def paused_at() -> str:
        for worker in cluster.decodes:
            load = await cluster.load(worker)
            if load.paused == load.streams == CHOICES:
                return worker.instance.id
        return ""

    worker = await eventually(paused_at)
    assert (await cluster.frontend.metrics())["baton_frontend_paused_requests"] == 1
    if killed:
        cluster[worker].kill()
    assert await texts_of(reader) == expected
    writer.close()
    assert (await cluster.frontend.metrics())["baton_frontend_paused_requests"] == 0
    if not killed:
        await cluster.at_baseline()
