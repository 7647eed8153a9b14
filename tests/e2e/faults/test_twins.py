"""The same execution id at two frontends: the router that it chooses knows of both."""

import asyncio

import pytest

from baton.client import ApiError, AsyncClient
from baton.errors import Reason
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import patient_client
from tests.support.wait import eventually


async def test_one_of_two_frontends_runs_it(local_cluster) -> None:
    cluster = await local_cluster(own=True, settings={"engine.sim_decode_step_seconds": 0.02})
    await cluster.start("router-1")
    other = await cluster.start("frontend-1")
    frontends = (cluster.frontend, other)

    async def active() -> float:
        shown = await asyncio.gather(*(frontend.metrics() for frontend in frontends))
        return sum(metrics.get("baton_frontend_worker_streams", 0) for metrics in shown)

    async with (
        patient_client(frontends[0].address, retries=0) as first,
        patient_client(frontends[1].address, retries=0) as second,
    ):

        async def ask(client: AsyncClient, number: int, tokens: int) -> tuple[int, ...]:
            stream = client.generate(
                prompt_of(40, number), model=MODEL, max_tokens=tokens, ignore_eos=True,
                execution_id=f"id-{number}", seed=number,
            )  # fmt: skip
            return (await stream.answer()).token_ids

        placed = dict.fromkeys(("router-0", "router-1"), 0.0)
        for number in range(6):  # at either router
            running = asyncio.create_task(ask(first, number, 1000))
            await eventually(active)
            with pytest.raises(ApiError) as caught:
                await ask(second, number, 5)
            assert caught.value.reason == Reason.ALREADY_EXISTS.name

            request = inference_pb2.GenerateRequest()
            request.token_ids.ids.extend(prompt_of(40, number))
            request.context.execution_id, request.context.model = f"id-{number}", MODEL
            request.context.attempt = 1
            request.sampling.max_tokens, request.sampling.ignore_eos = 5, True
            stub = InferenceServiceStub(cluster._channel(other))
            events = [event async for event in stub.Generate(request)]
            assert events[-1].HasField("finished")
            with pytest.raises(ApiError) as caught:
                await running
            assert caught.value.reason == Reason.ABORTED.name
            with pytest.raises(ApiError) as caught:
                await ask(first, number, 5)
            assert caught.value.reason == Reason.ALREADY_EXISTS.name
        for router in placed:
            shown = await cluster[router].metrics()
            placed[router] = sum(
                value for name, value in shown.items() if "router_placements_total" in name
            )
        assert all(placed.values()), "no id chose the other router"
