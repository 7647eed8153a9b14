"""The frontend as a process of its own."""

import asyncio
import socket
from typing import Any

import httpx


async def test_it_serves_until_it_is_told_to_stop(spawn_service: Any, model_dir: Any) -> None:
    frontend = await spawn_service("frontend", {"BATON_MODELS": f"m={model_dir}"})
    assert frontend.instance.role == 1
    async with httpx.AsyncClient(base_url=f"http://{frontend.instance.http_address}") as client:
        assert (await client.get("/health/ready")).status_code == 200
        assert (await client.get("/v1/models")).json()["data"] == []
        body = {"model": "m", "prompt": "x"}
        refused = await client.post("/v1/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_worker")
    assert await frontend.stop() == 0


async def test_what_needs_a_person_is_one_sentence(
    spawn_service: Any, model_dir: Any, tmp_path: Any
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = [
            await spawn_service("frontend", env, wait=False)
            for env in (
                {"BATON_MODELS": str(tmp_path / "broken")},
                {"BATON_HTTP_PORT": port},
                {"BATON_GRPC_PORT": port},
            )
        ]
        codes = await asyncio.gather(*(one.wait(30.0) for one in started))
    assert codes == [2, 2, 2]
    for one, words in zip(
        started,
        ("has no tokenizer.json: give", "set BATON_HTTP_PORT", "set BATON_GRPC_PORT"),
        strict=True,
    ):
        lines = one.log_path.read_text().splitlines()
        assert words in lines[-1]
        assert lines[-1].startswith("baton frontend: ")
