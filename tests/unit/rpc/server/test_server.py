"""What every server has: health, reflection, limits, a port of its own."""

import asyncio

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from baton.errors import BatonError, Reason
from baton.rpc.channel.pool import ChannelPool
from baton.rpc.channels import open_channel
from baton.rpc.server.health import INCARNATION_KEY
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings, StartupError
from tests.support.clock import DEADLINE_SECONDS, within
from tests.support.wait import eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def echo(request, context):
    return request


async def health(channel, service):
    request = health_pb2.HealthCheckRequest(service=service)
    return (
        await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_SECONDS)
    ).status


async def test_readiness_follows_set_ready_and_liveness_does_not(serve):
    async with serve(echo) as (server, _, call):
        channel = call.channel
        for service in ("", "readiness", "test.Echo"):
            assert await health(channel, service) == NOT_SERVING
        assert await health(channel, "liveness") == SERVING
        server.set_ready(True)
        for service in ("", "readiness", "test.Echo", "liveness"):
            assert await health(channel, service) == SERVING
        server.set_ready(False)
        server.set_ready(True)
        server.set_ready(False)
        assert await health(channel, "readiness") == NOT_SERVING
        assert await health(channel, "liveness") == SERVING


async def test_health_lists_everything_that_it_knows(serve):
    async with serve(echo) as (server, _, call):
        server.set_ready(True)
        server.set_part("keys", False)
        stub = health_pb2_grpc.HealthStub(call.channel)

        async def listed():
            asked = stub.List(health_pb2.HealthListRequest(), timeout=5)
            statuses = (await asked).statuses
            assert dict(await asked.trailing_metadata())[INCARNATION_KEY] == "i-1"
            return {name: one.status for name, one in statuses.items()}

        names = ("", "readiness", "liveness", "test.Echo")
        expected = {**dict.fromkeys(names, SERVING), "keys": NOT_SERVING}
        async with within(5):
            while await listed() != expected:
                await asyncio.sleep(0.01)


async def test_a_call_without_memory_is_told_so(serve):
    async def starved(request, context):
        raise MemoryError

    async with serve(starved) as (_, __, call):
        for method in ("UnaryUnary", "UnaryStream", "StreamStream"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(method, b"x")
            assert BatonError.from_rpc_error(caught.value).reason is Reason.OVERLOADED


async def test_health_watch_sees_the_server_become_ready(serve):
    async with serve(echo) as (server, _, call):
        request = health_pb2.HealthCheckRequest(service="readiness")
        watch = health_pb2_grpc.HealthStub(call.channel).Watch(request, timeout=DEADLINE_SECONDS)
        try:
            assert (await watch.read()).status == NOT_SERVING
            server.set_ready(True)
            assert (await watch.read()).status == SERVING
        finally:
            watch.cancel()


async def test_health_watch_does_not_hold_up_the_drain(serve):
    async with serve(echo) as (server, _, call):
        server.set_ready(True)
        request = health_pb2.HealthCheckRequest(service="readiness")
        watch = health_pb2_grpc.HealthStub(call.channel).Watch(request, timeout=30)
        try:
            await watch.read()
            async with within(2):
                await server.drain(10)
            assert (await watch.read()).status == NOT_SERVING
            assert await watch.code() is grpc.StatusCode.OK
        finally:
            watch.cancel()


async def test_health_says_which_process_answers(serve):
    async with serve(echo) as (_, _, call):
        check = health_pb2_grpc.HealthStub(call.channel).Check(
            health_pb2.HealthCheckRequest(service="liveness"), timeout=DEADLINE_SECONDS
        )
        await check
        assert dict(await check.trailing_metadata())[INCARNATION_KEY] == "i-1"


VERSIONS = ["v1", "v1alpha"]
"""Of reflection; the messages are alike."""


async def reflect(channel, version, *requests):
    """Ask in one call, and return the responses."""
    method = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [reflection_pb2.ServerReflectionRequest(**request) for request in requests]
    return [response async for response in method(iter(asked), timeout=DEADLINE_SECONDS)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_reflection_lists_services_where_it_is_asked_for(serve, version):
    async with serve(echo, reflection=True) as (_, _, call):
        (listed,) = await reflect(call.channel, version, {"list_services": ""})
        names = [service.name for service in listed.list_services_response.service]
        both = [f"grpc.reflection.{each}.ServerReflection" for each in VERSIONS]
        assert names == ["grpc.health.v1.Health", *both, "test.Echo"]
    async with serve(echo) as (_, _, call):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await reflect(call.channel, version, {"list_services": ""})
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("version", VERSIONS)
async def test_reflection_describes_every_service_that_it_lists(serve, version):
    async with serve(echo, reflection=True) as (_, _, call):
        (listed,) = await reflect(call.channel, version, {"list_services": ""})
        for service in listed.list_services_response.service:
            if service.name == "test.Echo":
                continue  # has no file
            request = {"file_containing_symbol": service.name}
            (found,) = await reflect(call.channel, version, request)
            pool = DescriptorPool()
            for file in reversed(found.file_descriptor_response.file_descriptor_proto):
                pool.AddSerializedFile(file)
            methods = pool.FindServiceByName(service.name).methods
            assert [method.input_type.file.package for method in methods] == [
                service.name.rpartition(".")[0]
            ] * len(methods)
        (missing,) = await reflect(call.channel, version, {"file_by_filename": "no.proto"})
        assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_port_in_use_is_a_sentence(serve):
    async with serve(echo) as (server, _, _):
        port = int(server.address.rpartition(":")[2])
        async with Server(GrpcSettings(port=port), "second") as second:
            with pytest.raises(StartupError, match=rf"cannot bind .*:{port} .*BATON_GRPC_PORT"):
                await second.start()


async def test_listening_everywhere_needs_a_host_for_others():
    async with Server(GrpcSettings(host="0.0.0.0"), "test") as server:
        with pytest.raises(StartupError, match="BATON_ADVERTISE_HOST"):
            await server.start()
    async with Server(GrpcSettings(host="0.0.0.0"), "test", "127.0.0.1") as server:
        await server.start()
        assert server.address.startswith("127.0.0.1:")
        assert not server.address.endswith(":0")


async def test_calls_beyond_the_limit_are_refused_at_once(serve):
    release = asyncio.Event()
    entered = 0

    async def hold(request, context):
        nonlocal entered
        entered += 1
        await release.wait()
        return request

    async with serve(hold, max_concurrent=2) as (_, _, call):
        held = [asyncio.create_task(call("UnaryUnary", b"")) for _ in range(2)]
        await eventually(lambda: entered == 2)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call("UnaryUnary", b"")
        assert BatonError.from_rpc_error(failed.value).reason is Reason.OVERLOADED
        release.set()
        await asyncio.gather(*held)


async def test_message_over_the_limit_is_refused(serve):
    async with serve(echo, max_message_bytes=65536) as (_, _, call):
        assert await call("UnaryUnary", bytes(60_000)) == [bytes(60_000)]
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call("UnaryUnary", bytes(70_000))
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_drain_lets_running_calls_end_and_takes_no_new_ones(serve):
    entered = asyncio.Event()

    async def slow(request, context):
        entered.set()
        await asyncio.sleep(0.2)
        return request

    async with serve(slow) as (server, _, call):
        running = asyncio.create_task(call("UnaryUnary", b"late"))
        await entered.wait()
        await server.drain(30)
        assert await running == [b"late"]
        with pytest.raises(grpc.aio.AioRpcError):
            await call("UnaryUnary", b"new")


async def test_leaving_cancels_calls_that_do_not_end(serve):
    entered, ended = asyncio.Event(), asyncio.Event()

    async def hang(request, context):
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with serve(hang) as (server, _, call):
        running = asyncio.create_task(call("UnaryUnary", b""))
        await entered.wait()
        async with within(2):
            await server.drain(0.2)
        async with within(2):
            await ended.wait()
        with pytest.raises(grpc.aio.AioRpcError):
            await running


async def test_pool_has_one_channel_per_address_and_drops_it(serve):
    async with serve(echo) as (server, _, _), ChannelPool() as pool:

        async def ask(channel, request):
            return await channel.unary_unary("/test.Echo/UnaryUnary", bytes, bytes)(request)

        channel = pool.get(server.address)
        assert pool.get(server.address) is channel
        assert await ask(channel, b"x") == b"x"
        await pool.drop(server.address)
        await pool.drop(server.address)
        again = pool.get(server.address)
        assert again is not channel
        assert await ask(again, b"y") == b"y"


async def test_channel_reaches_a_process_that_came_back_within_two_seconds(serve):
    async with serve(echo) as (server, _, _):
        port = int(server.address.rpartition(":")[2])
        channel = open_channel(server.address)
        ask = channel.unary_unary("/test.Echo/UnaryUnary")
        assert await ask(b"x", timeout=DEADLINE_SECONDS) == b"x"
    with pytest.raises(grpc.aio.AioRpcError):
        await ask(b"x", timeout=1)
    async with serve(echo, port=port), within(2):
        assert await ask(b"y", timeout=DEADLINE_SECONDS, wait_for_ready=True) == b"y"
    await channel.close()
