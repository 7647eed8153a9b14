"""The endpoint picker over gRPC, as gateways call it: destinations, 429 and 503, and ends."""

import asyncio
from contextlib import suppress

import grpc
import pytest

from tests.integration.picker.conftest import Gateway, PickerWorld
from tests.support import ext_proc
from tests.support.clock import DEADLINE_SECONDS, within
from tests.support.doubles.member import MODEL
from tests.support.wait import eventually

FIRST, SECOND = "10.0.0.1:8000", "10.0.0.2:8000"
ASKED = b'{"model": "%s", "prompt": "hi"}' % MODEL.encode()
SHEDDABLE = {**ext_proc.JSON, "x-gateway-inference-objective": "sheddable"}


async def picked(gateway: Gateway, **head: object) -> list[str]:
    answers = await gateway.answers(ext_proc.head(**head), ext_proc.body(ASKED))  # type: ignore[arg-type]
    assert ext_proc.passed_on(answers) == (ASKED, True)
    return ext_proc.destination(answers).split(",")


async def status(gateway: Gateway, **head: object) -> int:
    """The status that the gateway is to answer with; 0: the request goes on."""
    answers = await gateway.answers(ext_proc.head(**head), ext_proc.body(ASKED))  # type: ignore[arg-type]
    return answers[-1].immediate_response.status.code


async def test_frontends_are_those_of_the_cluster(world: PickerWorld) -> None:
    gateway = await world.picker()
    (answer,) = await gateway.answers(ext_proc.head(end=True))
    assert answer.immediate_response.status.code == 503
    assert b"no frontend is available" in answer.immediate_response.body
    one = await world.frontend_at(FIRST)
    await eventually(lambda: status_is(gateway, 0))
    await world.frontend_at(SECOND)
    await eventually(lambda: found(gateway, {FIRST, SECOND}))
    assert await picked(gateway, subset=[SECOND]) == [SECOND]
    assert await status(gateway, subset=["10.0.0.9:8000"]) == 503
    await one.stop()
    await eventually(lambda: found(gateway, {SECOND}))


async def status_is(gateway: Gateway, expected: int, **head: object) -> bool:
    return await status(gateway, **head) == expected


async def found(gateway: Gateway, expected: set[str]) -> bool:
    return set(await picked(gateway)) == expected


async def test_open_streams_count_for_their_frontend_until_they_end(world: PickerWorld) -> None:
    await world.frontend_at(FIRST)
    await world.frontend_at(SECOND)
    gateway = await world.picker()
    await eventually(lambda: found(gateway, {FIRST, SECOND}))
    call = gateway.call()
    await call.write(ext_proc.head(end=True))
    busy = ext_proc.destination([await call.read()]).split(",")[0]
    other = ({FIRST, SECOND} - {busy}).pop()
    for _ in range(8):
        assert await picked(gateway) == [other, busy]
    await call.write(ext_proc.response_head(served=other))  # the gateway had to retry
    await call.read()
    for _ in range(8):
        assert await picked(gateway) == [busy, other]
    call.cancel()
    await eventually(lambda: gateway.service.sample("baton_picker_streams") == 0)
    assert {(await picked(gateway))[0] for _ in range(40)} == {FIRST, SECOND}


async def test_what_would_wait_is_shed_and_a_full_queue_is_for_none(world: PickerWorld) -> None:
    await world.frontend_at(FIRST)
    worker = await world.decode("d1")
    await worker.load(prefill_tokens_per_second=1000.0)
    full = {"queue.gate_seconds": 0, "queue.max_tenant": 2}
    asker = world.frontend(await world.router(full))
    gateway = await world.picker()
    await eventually(lambda: status_is(gateway, 0, headers=SHEDDABLE))
    tenant = {"context": {"model": MODEL, "tenant": "default"}}
    await asker.place(keep=True, **tenant)  # the worker is busy, by the router's ticket
    await eventually(lambda: status_is(gateway, 429, headers=SHEDDABLE))
    assert await status(gateway) == 0
    for _ in range(2):
        assert (await asker.ask(**tenant)).HasField("queued")
    await eventually(lambda: status_is(gateway, 429))
    answers = await gateway.answers(ext_proc.head(), ext_proc.body(ASKED))
    immediate = answers[0].immediate_response
    headers = {one.header.key: one.header.raw_value for one in immediate.headers.set_headers}
    assert int(headers["retry-after"]) >= 1
    assert b"are full" in immediate.body
    other = ASKED.replace(MODEL.encode(), b"unknown")
    answers = await gateway.answers(ext_proc.head(), ext_proc.body(other))
    assert ext_proc.destination(answers) == FIRST, "the frontend says that it does not know it"
    assert gateway.service.sample("baton_picker_picks_total", outcome="shed") >= 1
    assert gateway.service.sample("baton_picker_picks_total", outcome="full") >= 2


async def test_only_what_every_router_says_counts(world: PickerWorld) -> None:
    await world.frontend_at(FIRST)
    await (await world.decode("d1")).load(prefill_tokens_per_second=1000.0)
    settings = {"queue.gate_seconds": 0, "queue.max_tenant": 1}
    routers = [await world.router(settings), await world.router(settings)]
    gateway = await world.picker()
    tenant = {"context": {"model": MODEL, "tenant": "default"}}
    askers = [world.frontend(router) for router in routers]
    await askers[0].place(keep=True, **tenant)
    assert (await askers[0].ask(**tenant)).HasField("queued")
    for _ in range(5):
        assert await status(gateway, headers=SHEDDABLE) == 0, "the other router's queue is empty"
    await routers[1].stop(drain=False)
    await eventually(lambda: status_is(gateway, 429))


async def test_a_body_that_ends_never_and_a_deadline(world: PickerWorld) -> None:
    await world.frontend_at(FIRST)
    gateway = await world.picker({"picking.max_body_bytes": 1 << 20})
    await eventually(lambda: status_is(gateway, 0))
    held = "baton_picker_held_bytes"
    call = gateway.call(timeout=0.5)
    with suppress(asyncio.InvalidStateError):  # a busy machine may take longer to write
        await call.write(ext_proc.head())
        await call.write(ext_proc.body(bytes(1000), end=False))
    async with within(30.0):
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    call = gateway.call()
    await call.write(ext_proc.head())
    await call.write(ext_proc.body(bytes(1000), end=False))
    await eventually(lambda: gateway.service.sample(held) == 1000)
    call.cancel()
    await eventually(lambda: gateway.service.sample(held) == 0)
    large = bytes(3 << 20)
    pieces = [large[at : at + (64 << 10)] for at in range(0, len(large), 64 << 10)]
    bodies = [ext_proc.body(one, end=one is pieces[-1]) for one in pieces]
    sent = asyncio.create_task(gateway.answers(ext_proc.head(), *bodies))
    answers = await sent
    assert ext_proc.passed_on(answers) == (large, True)
    assert ext_proc.destination(answers) == FIRST
    assert gateway.service.sample("baton_picker_unread_bodies_total") == 1


@pytest.mark.parametrize("name", ["", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"])
async def test_gateways_may_check_its_health(world: PickerWorld, name: str) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    gateway = await world.picker()
    stub = health_pb2_grpc.HealthStub(gateway._channel)

    async def serving() -> bool:
        asked = health_pb2.HealthCheckRequest(service=name)
        answer = await stub.Check(asked, timeout=DEADLINE_SECONDS)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    await eventually(serving)
