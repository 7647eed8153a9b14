"""Routers publish what pools need, by real queries, reports and records in etcd."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from services.router.sizing.decision import SizingReason
from tests.support.services.service import LocalService
from tests.support.wait import eventually

PAGES = 1_000_000
WAITING = {"model": "m", "class": "interactive"}


def needed(router: LocalService, role: str = "combined") -> float | None:
    """Return the gauge; None: it is absent."""
    return router.scope.registry.get_sample_value(
        "baton_needed_replicas", {"role": role, "model": "m"}
    )


def reasons(router: LocalService, role: str = "combined") -> list[str]:
    labels = {"role": role, "model": "m"}
    registry, name = router.scope.registry, "baton_needed_replicas_reason"
    return [
        reason
        for reason in SizingReason
        if registry.get_sample_value(name, {**labels, "reason": reason}) == 1
    ]


async def combined(world: Any, name: str = "c1") -> Any:
    """A worker that has learned that it computes 1,000 prompt tokens a second."""
    worker = await world.add(name, cluster_pb2.ROLE_COMBINED)
    await worker.load(free_pages=PAGES, total_pages=PAGES, prefill_tokens_per_second=1_000.0)
    return worker


async def learns(worker: Any, numbers: Iterator[int]) -> None:
    """Have a worker report another rate, so that its router believes that it measures."""
    await worker.load(prefill_tokens_per_second=1_000.0 + next(numbers) % 2)


async def test_a_queue_that_grows_needs_more_replicas(world) -> None:
    await world.store("store-a")
    worker = await combined(world)
    router = await world.router({"queue.gate_seconds": 0.1})
    frontend = world.frontend(router)
    for _ in range(300):
        await frontend.call.write(frontend.query())
    numbers = count()

    async def grows() -> bool:
        await learns(worker, numbers)
        # 309,000 tokens in 30 s, at 700 a second; and all of them wait.
        return (needed(router) or 0) >= 15

    await eventually(grows)
    assert reasons(router)[0] in ("backlog", "arrivals", "hold_window")
    await eventually(lambda: router.sample("baton_router_queue_length", **WAITING) > 0)


async def test_an_idle_pool_needs_nothing_and_a_request_wakes_it(world) -> None:
    await world.store("store-a")
    worker = await combined(world)
    router = await world.router({"scaling.arrival_seconds": 5, "scaling.idle_seconds": 1})
    await eventually(lambda: needed(router) == 0)
    assert reasons(router) == ["idle"]
    await worker.stop()
    frontend = world.frontend(router)

    async def refused() -> bool:
        answer = await frontend.ask()
        if not answer.HasField("failed"):
            await frontend.return_tickets([answer.placement.ticket])
            return False
        reason = BatonError.from_status(answer.failed.status).reason
        return reason is Reason.NO_WORKER

    await eventually(refused)
    await eventually(lambda: needed(router) == 1)
    await eventually(lambda: reasons(router) == ["wake"])
    back = await combined(world, "c2")
    await eventually(lambda: needed(router) == 0)
    await back.stop()


async def test_two_routers_that_see_a_part_each_publish_the_whole_need(world) -> None:
    await world.store("store-a")
    worker = await combined(world)
    settings = {"scaling.arrival_seconds": 600, "scaling.backlog_seconds": 3600}
    routers = [await world.router(settings), await world.router(settings)]
    one = routers[0]

    async def ask(router: LocalService, times: int) -> None:
        frontend = world.frontend(router)
        for _ in range(times):
            await frontend.place(prompt_tokens=100_000)
        await frontend.close()

    await ask(one, 10)
    numbers = count()

    async def needs(router: LocalService, replicas: int) -> bool:
        await learns(worker, numbers)
        return needed(router) == replicas

    # A million tokens in 600 s, of 700 a second per replica.
    for router in routers:
        await eventually(lambda router=router: needs(router, 3))
    await ask(routers[1], 10)
    for router in routers:
        await eventually(lambda router=router: needs(router, 5))
