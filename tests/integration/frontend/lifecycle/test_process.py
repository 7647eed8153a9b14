"""The frontend as a process of its own."""

import asyncio
import socket
from typing import Any

import pytest

from baton.host.ports import held_port
from tests.support.wait import eventually


async def test_without_a_worker_it_refuses_clients_until_it_is_told_to_stop(
    spawn_service: Any,
) -> None:
    with held_port() as http, held_port() as grpc:
        ports = {"BATON_HTTP_PORT": str(http), "BATON_GRPC_PORT": str(grpc)}
        frontend = await spawn_service("frontend", ports, wait=False)
        await eventually(lambda: "frontend.startup.waiting" in frontend.log_path.read_text())
        for port in (http, grpc):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
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
