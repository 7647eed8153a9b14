"""Place streams: events drive affinity, tickets live and die with sessions, errors end nothing."""

import asyncio

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from tests.support.clock import within
from tests.support.wait import eventually

CHAIN = [i.to_bytes(16, "little") for i in range(64)]


@pytest.fixture
async def pools(world):
    """Two prefill and two decode workers on two stores; decode has many streams running."""
    for store in ("store-a", "store-b"):
        await world.store(store)
    for number, store in enumerate(("store-a", "store-b"), 1):
        await world.prefill(f"p{number}", store)
        decode = await world.decode(f"d{number}", store)
        await decode.load(running=40, decode_step_seconds=0.03)
    frontend = world.frontend(await world.router())

    async def everybody() -> bool:
        answers = [(await frontend.ask()).placement for _ in range(8)]
        await frontend.return_tickets([placement.ticket for placement in answers])
        used = {placement.decode.instance_id for placement in answers}
        used |= {placement.prefill.instance_id for placement in answers}
        return used == {"p1", "p2", "d1", "d2"}

    await eventually(everybody, 10)
    return world, frontend


async def test_events_of_engines_draw_requests_and_evictions_let_them_go(pools) -> None:
    world, frontend = pools
    world.members["d2"].hold(CHAIN)

    async def at_d2() -> bool:
        placement = await frontend.place(CHAIN)
        return (
            not placement.HasField("prefill")
            and placement.decode.instance_id == "d2"
            and placement.prediction.cached_tokens == 1024
        )

    await eventually(at_d2, 10)
    world.members["d2"].evict(CHAIN)

    async def remote() -> bool:
        placement = await frontend.place(CHAIN)
        return placement.HasField("prefill") and placement.prediction.cached_tokens == 0

    await eventually(remote, 10)


async def test_events_of_stores_draw_requests_to_the_workers_beside_them(pools) -> None:
    world, frontend = pools
    world.members["store-b"].hold(CHAIN[:48])

    async def beside_b() -> bool:
        placement = await frontend.place(CHAIN)
        return (
            placement.prefill.instance_id in {"", "p2"}
            and placement.prediction.cached_tokens == 48 * 16
        )

    await eventually(beside_b, 10)


async def test_a_store_that_restarts_empty_is_forgotten_and_what_it_says_anew_is_known(
    pools,
) -> None:
    world, frontend = pools
    store = world.members["store-b"]
    store.hold(CHAIN)

    async def cached(tokens: int) -> bool:
        return (await frontend.place(CHAIN)).prediction.cached_tokens == tokens

    await eventually(lambda: cached(1024), 10)
    await store.kill()
    await eventually(lambda: cached(0), 10)
    await store.restart()
    store.hold(CHAIN[:32])
    await eventually(lambda: cached(512), 10)


async def test_a_worker_on_another_store_gets_sources_with_addresses(pools) -> None:
    _, frontend = pools
    crossed = 0
    for _ in range(60):
        placement = await frontend.place()
        stores = {s.store_id for s in placement.sources}
        same = placement.prefill.instance_id[1:] == placement.decode.instance_id[1:]
        if not same:
            crossed += 1
            assert stores == {"store-a" if placement.prefill.instance_id == "p1" else "store-b"}
            assert all(":" in s.address for s in placement.sources)
        else:
            assert not stores
    if not crossed:  # near is cheaper; push one pair apart
        placement = await frontend.place(excluded_instances=["p1", "d2"])
        assert [s.store_id for s in placement.sources] == ["store-b"]


async def test_tickets_are_returned_or_die_with_their_session(pools) -> None:
    world, frontend = pools

    def open_tickets(count: int) -> bool:
        return world.routers[0].sample("baton_router_tickets") == count

    await eventually(lambda: open_tickets(0), 10)
    other = world.frontend(world.routers[0])
    kept = [(await frontend.place(keep=True)).ticket for _ in range(3)]
    for _ in range(5):
        await other.place(keep=True)
    await eventually(lambda: open_tickets(8), 10)
    other.call.cancel()
    await eventually(lambda: open_tickets(3), 10)
    await frontend.return_tickets(kept)
    await eventually(lambda: open_tickets(0), 10)


async def test_thousands_of_queries_in_flight_are_answered_in_order(pools) -> None:
    _, frontend = pools
    count = 3000
    first = frontend._asked + 1

    async def write() -> None:
        for _ in range(count):
            await frontend.call.write(frontend.query(CHAIN))

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.3)  # answers pile up unread
    async with within(20):
        answers: list[router_pb2.FrameFromRouter] = []
        while len(answers) < count:
            answers.extend((await frontend.call.read()).frames)
    await writing
    numbers = [a.placement.correlation_id or a.failed.correlation_id for a in answers]
    assert numbers == list(range(first, first + count))


async def test_a_refused_query_names_its_reason_and_the_stream_goes_on(pools) -> None:
    _, frontend = pools
    for fields, reason in (
        ({"prompt_tokens": -1}, Reason.INVALID_FIELD),
        ({"context": {"model": "nobody"}}, Reason.MODEL_NOT_FOUND),
        ({"prompt_tokens": 1_000_000}, Reason.NO_CAPACITY),
        ({"excluded_instances": ["d1", "d2"]}, Reason.NO_WORKER),
    ):
        response = await frontend.ask(**fields)
        assert BatonError.from_status(response.failed.status).reason is reason
    assert (await frontend.place()).ticket


async def test_frames_without_content_and_unknown_tickets_are_ignored(pools) -> None:
    _, frontend = pools
    assert (await frontend.place()).ticket
    await frontend.call.write(router_pb2.PlaceRequest())
    empty = router_pb2.FrameToRouter()
    await frontend.call.write(router_pb2.PlaceRequest(frames=[empty]))
    await frontend.return_tickets(["never issued"])
    assert (await frontend.place()).ticket


async def test_a_frontend_that_closes_its_side_gets_every_answer_first(pools) -> None:
    _, frontend = pools
    for _ in range(50):
        await frontend.call.write(frontend.query(CHAIN))
    await frontend.call.done_writing()
    async with within(5):
        answers: list[router_pb2.FrameFromRouter] = []
        while len(answers) < 50:
            answers.extend((await frontend.call.read()).frames)
        assert all(answer.HasField("placement") for answer in answers)
        assert len(answers) == 50
        assert await frontend.call.read() is grpc.aio.EOF
    assert (await frontend.call.code()).name == "OK"


async def test_what_waits_goes_when_its_worker_runs_dry_whatever_that_says(world) -> None:
    await world.store("store-a")
    worker = await world.decode("d1")
    await worker.load(pending_prompt_tokens=1_500, prefill_tokens_per_second=1_000.0)
    frontend = world.frontend(await world.router({"queue.gate_seconds": 0.1}))
    queued = await frontend.ask()
    assert queued.HasField("queued")
    # Each second it says that it has as much to compute as ever.
    placed = (await frontend.read()).placement
    assert placed.decode.instance_id == "d1"
    assert placed.prediction.queue_seconds <= 0.1
    await worker.load(pending_prompt_tokens=100_000, tickets=[placed.ticket])
    assert (await frontend.ask()).HasField("queued")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(frontend.read(), 1.0)
