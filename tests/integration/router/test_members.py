"""Workers and stores come, die and fall stale, etcd dies: placements follow within a second."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.errors import BatonError, Reason
from baton.rpc.channels import open_channel
from tests.support.clock import DEADLINE_SECONDS, Stopwatch, within
from tests.support.wait import eventually


async def seconds_until(check: Callable[[], Awaitable[bool]], limit: float) -> float:
    """How long it took until `check` held; fails the test after `limit` seconds.

    Limits are generous: where a time is promised, the best of several is compared with it.
    """
    watch = Stopwatch()
    await eventually(check, limit)
    return watch.seconds


async def decodes_used(frontend, asks: int = 40) -> set[str]:
    return {(await frontend.place()).decode.instance_id for _ in range(asks)}


def refusal(response) -> Reason:
    assert response.HasField("failed")
    return BatonError.from_status(response.failed.status).reason


@pytest.mark.serial
async def test_a_worker_that_comes_is_used_within_a_second(world) -> None:
    frontend = world.frontend(await world.router())
    assert refusal(await frontend.ask()) is Reason.MODEL_NOT_FOUND
    await world.store("store-a")
    others: list[str] = []
    took = []
    for number in range(3):
        name = f"d{number}"
        await world.decode(name)

        async def used(name: str = name) -> bool:
            # Nobody else may be used, so that one question is enough to see it.
            answer = await frontend.ask(excluded_instances=others)
            return answer.placement.decode.instance_id == name

        took.append(await seconds_until(used, 10.0))
        others.append(name)
    assert min(took) < 1.0, took


@pytest.mark.serial
async def test_a_killed_worker_is_not_used_a_second_later_and_is_again_when_restarted(
    world,
) -> None:
    await world.store("store-a")
    workers = {name: await world.decode(name) for name in ("d1", "d2")}
    frontend = world.frontend(await world.router())

    async def both() -> bool:
        return await decodes_used(frontend, 8) == {"d1", "d2"}

    async def only_d2() -> bool:
        return await decodes_used(frontend, 20) == {"d2"}

    took = []
    for _ in range(2):
        await seconds_until(both, 10.0)
        await workers["d1"].kill()
        took.append(await seconds_until(only_d2, 10.0))
        await asyncio.sleep(0.2)
        assert await only_d2()
        await workers["d1"].restart()
    await seconds_until(both, 10.0)
    assert min(took) < 1.0, took


async def test_a_router_that_joins_answers_its_first_question(world) -> None:
    await world.store("store-a")
    for number in range(4):
        await world.decode(f"d{number}")
    for _ in range(3):
        assert (await world.frontend(await world.router()).place()).ticket


async def test_the_last_worker_dies_and_the_model_has_no_worker(world) -> None:
    await world.store("store-a")
    worker = await world.decode("d1")
    frontend = world.frontend(await world.router())

    async def placed() -> bool:
        return (await frontend.ask()).HasField("placement")

    await seconds_until(placed, 10.0)
    await worker.kill()

    async def refused() -> bool:
        return not await placed()

    await seconds_until(refused, 10.0)
    response = await frontend.ask()
    assert refusal(response) is Reason.NO_WORKER
    assert BatonError.from_status(response.failed.status).retry_after == 1.0


async def test_a_worker_that_reports_nothing_more_is_left_alone_until_it_does(world) -> None:
    await world.store("store-a")
    workers = {name: await world.decode(name) for name in ("d1", "d2")}
    frontend = world.frontend(await world.router({"watch.silence_seconds": 2}))

    async def used(names: set[str]) -> bool:
        return await decodes_used(frontend, 8) == names

    await seconds_until(lambda: used({"d1", "d2"}), 10.0)
    workers["d1"].muted = True
    assert "d1" in await decodes_used(frontend)  # it is not overdue yet
    await seconds_until(lambda: used({"d2"}), 10.0)
    workers["d1"].muted = False
    await seconds_until(lambda: used({"d1", "d2"}), 10.0)


async def test_a_draining_worker_gets_nothing_new(world) -> None:
    await world.store("store-a")
    workers = {name: await world.decode(name) for name in ("d1", "d2")}
    frontend = world.frontend(await world.router())

    async def used(names: set[str]) -> bool:
        return await decodes_used(frontend, 8) == names

    await seconds_until(lambda: used({"d1", "d2"}), 10.0)
    await workers["d1"].load(draining=True)
    await seconds_until(lambda: used({"d2"}), 10.0)


async def test_placement_goes_on_while_etcd_is_dead_and_sees_deaths_and_news_after_it(
    own_etcd_world,
) -> None:
    world = own_etcd_world
    await world.store("store-a")
    workers = {name: await world.decode(name) for name in ("d1", "d2")}
    frontend = world.frontend(await world.router())

    async def used(names: set[str]) -> bool:
        return await decodes_used(frontend, 8) == names

    await seconds_until(lambda: used({"d1", "d2"}), 10.0)
    await world.etcd.kill()
    seen = set()
    for _ in range(20):
        seen |= await decodes_used(frontend, 8)
        await asyncio.sleep(0.05)
    assert seen == {"d1", "d2"}
    await workers["d1"].kill()
    await seconds_until(lambda: used({"d2"}), 10.0)
    await world.etcd.start()
    await world.decode("d3")
    await seconds_until(lambda: used({"d2", "d3"}), 15.0)


async def test_a_router_is_alive_without_etcd_and_ready_once_it_has_listed(own_etcd_world) -> None:
    world = own_etcd_world
    await world.etcd.kill()
    router = await world.router(ready=False)
    async with open_channel(router.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def serving(service: str) -> bool:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await health.Check(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)
            return answer.status == health_pb2.HealthCheckResponse.SERVING

        assert await serving("liveness")
        assert not await serving("readiness")
        early = world.frontend(router)
        try:
            await early.ask()
        except grpc.aio.AioRpcError as error:
            assert BatonError.from_rpc_error(error).reason is Reason.UNAVAILABLE
        else:
            raise AssertionError("a router that knows no cluster answered")
        await world.etcd.start()
        await seconds_until(lambda: serving("readiness"), 15.0)
        assert await serving("baton.internal.v1.RouterService")
        assert refusal(await world.frontend(router).ask()) is Reason.MODEL_NOT_FOUND


async def test_sigterm_ends_sessions_with_draining_and_exits_in_order(world, spawn_service) -> None:
    service = await spawn_service("router")
    await world.decode("d1")
    frontend = world.frontend(service)

    async def placed() -> bool:
        return (await frontend.ask()).HasField("placement")

    await seconds_until(placed, 10.0)
    stopping = asyncio.create_task(service.stop())
    try:
        async with within(5.0):
            assert await frontend.call.read() is grpc.aio.EOF
    except grpc.aio.AioRpcError as error:
        assert BatonError.from_rpc_error(error).reason is Reason.DRAINING
    else:
        raise AssertionError("the stream ended without saying why")
    assert await stopping == 0
    assert await world.client.get(f"/baton/{world.cluster}/instances/{service.instance_id}") is None
