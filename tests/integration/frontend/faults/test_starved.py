"""A machine that is short of processors: nobody is taken for gone because everybody is slow."""

import asyncio
import time
from typing import Any

from baton.client import AsyncClient, Client
from tests.integration.frontend.faults.test_faults import Reading, generate
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually


async def test_a_process_that_hardly_runs_takes_nobody_for_dead(stage: Any) -> None:
    """Workers, router and frontend are in this process: an answer takes some turns of its loop."""
    for name in ("d0", "d1"):
        stage.worker(name).script.step_seconds = 0.5
    reading = Reading(stage.stub().Generate(generate(stage, 12)))
    await eventually(lambda: reading.at[0] > 0)
    for _ in range(10):
        time.sleep(0.6)  # noqa: ASYNC251
        await asyncio.sleep(0)
    for name in ("d0", "d1"):
        stage.worker(name).script.step_seconds = 0.0
    await eventually(lambda: reading.finished)
    assert reading.text == [stage.said(0, 12)]
    assert len(stage.router.queries) == 1
    await stage.quiet()


async def test_streams_of_the_client_outlive_a_frontend_that_did_not_run_for_seconds(
    stage: Any,
) -> None:
    """Its keepalive takes the frontend for lost after 3 s; then each stream goes on by `resume`."""
    for name in ("d0", "d1"):
        stage.worker(name).script.step_seconds = 0.02
    options: dict[str, Any] = {"model": stage.model, "max_tokens": 200, "resume": True}
    prompt = "x" * 40
    async with TcpProxy(stage.grpc_address) as proxy, AsyncClient(proxy.address) as client:
        streams = [client.generate(prompt, **options) for _ in range(4)]  # two on a session

        def blocking() -> str:
            with Client(proxy.address) as other:
                return other.generate(prompt, **options).answer().text

        answers = [asyncio.create_task(stream.answer()) for stream in streams]
        answer = asyncio.create_task(asyncio.to_thread(blocking))
        await eventually(lambda: all(stream.token_ids for stream in streams))
        before = len(stage.router.queries)
        assert before == 5
        proxy.hold()
        await asyncio.sleep(3.5)  # longer than the client's second and two
        proxy.release()
        texts = [each.text for each in await asyncio.gather(*answers)]
        assert {*texts, await answer} == {stage.said(0, 200)}
    assert len(stage.router.queries) >= 2 * before  # each was asked again
    await stage.quiet()
