"""The frontend as a process of its own."""

import asyncio
import socket
from typing import Any

import httpx


async def test_it_serves_until_it_is_told_to_stop(spawn_service: Any) -> None:
    frontend = await spawn_service("frontend")
    assert frontend.instance.role == 1
    async with httpx.AsyncClient(base_url=f"http://{frontend.instance.http_address}") as client:
        assert (await client.get("/health/ready")).json() == {"status": "no_model"}
        assert (await client.get("/v1/models")).json()["data"] == []
        body = {"model": "m", "prompt": "x"}
        refused = await client.post("/v1/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_worker")
    assert await frontend.stop() == 0


async def test_what_needs_a_person_is_one_sentence(spawn_service: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = [
            await spawn_service("frontend", env, wait=False)
            for env in (
                {"BATON_HTTP_PORT": port},
                {"BATON_GRPC_PORT": port},
            )
        ]
        codes = await asyncio.gather(*(one.wait(30.0) for one in started))
    assert codes == [2, 2]
    for one, words in zip(
        started,
        ("set BATON_HTTP_PORT", "set BATON_GRPC_PORT"),
        strict=True,
    ):
        lines = one.log_path.read_text().splitlines()
        assert words in lines[-1]
        assert lines[-1].startswith("baton frontend: ")
