"""What every call gets: its caller's ids, and errors with details whatever its kind."""

import asyncio
import io
import json
import logging

import grpc
import pytest
import structlog

from baton.errors import BatonError, Reason, abort
from baton.rpc.request_id import clean_request_id
from baton.telemetry import logs, tracing
from baton.telemetry.context import request_id
from tests.support.clock import DEADLINE_SECONDS, within

METHODS = ["UnaryUnary", "UnaryStream", "UnaryWrites", "StreamUnary", "StreamStream"]
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def log():
    out = io.StringIO()
    root = logging.getLogger()
    handlers, config = root.handlers[:], structlog.get_config()
    logs.configure("test", "test-1", stream=out)
    yield out
    root.handlers[:] = handlers
    structlog.configure(**config)


async def echo(request, context):
    return request


@pytest.mark.parametrize("method", METHODS)
async def test_messages_pass(serve, method):
    async with serve(echo) as (_, _, call):
        expected = [b"hello", b"second"] if method == "UnaryStream" else [b"hello"]
        assert await call(method, b"hello") == expected


@pytest.mark.parametrize("method", METHODS)
async def test_baton_error_reaches_the_caller_with_its_details(serve, method):
    async def refuse(request, context):
        raise BatonError(Reason.NO_CAPACITY, "64 of 64 slots", field="n", retry_after=0.25)

    async with serve(refuse) as (_, _, call):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(method, b"hello")
    error = BatonError.from_rpc_error(failed.value)
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (error.reason, error.message, error.field, error.retry_after) == (
        Reason.NO_CAPACITY,
        "64 of 64 slots",
        "n",
        0.25,
    )


@pytest.mark.parametrize("method", METHODS)
async def test_bug_is_internal_leaks_nothing_and_is_logged(serve, method, log):
    async def bug(request, context):
        raise KeyError("secret")

    async with serve(bug) as (_, _, call):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(method, b"hello", metadata=(("x-request-id", "req-1"),))
    assert BatonError.from_rpc_error(failed.value).reason is Reason.INTERNAL
    assert "secret" not in str(failed.value.trailing_metadata())
    assert "secret" not in failed.value.details()
    (line,) = [json.loads(text) for text in log.getvalue().splitlines() if "handler" in text]
    assert "KeyError: 'secret'" in line["exception"]
    assert line["request_id"] == "req-1"
    assert line["method"].endswith(method)


@pytest.mark.parametrize("method", METHODS)
async def test_abort_of_the_handler_itself_stands(serve, method, log):
    async def leave(request, context):
        await abort(context, BatonError(Reason.DRAINING, "going"))

    async with serve(leave) as (_, _, call):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(method, b"hello")
    assert BatonError.from_rpc_error(failed.value).reason is Reason.DRAINING
    assert "rpc.handler.failed" not in log.getvalue()


@pytest.mark.parametrize("method", METHODS)
async def test_handler_knows_its_request_and_trace(serve, method):
    async def who(request, context):
        return f"{request_id.get()} {tracing.inject()}".encode()

    metadata = (("x-request-id", "req-1"), ("traceparent", TRACEPARENT))
    async with serve(who) as (_, _, call):
        assert (await call(method, b"", metadata=metadata))[0] == f"req-1 {TRACEPARENT}".encode()
        assert (await call(method, b""))[0] == b" "


@pytest.mark.parametrize("method", ["UnaryStream", "StreamStream"])
async def test_yielding_handler_is_closed_when_its_client_goes(serve, method):
    entered = asyncio.Event()

    async def hang(request, context):
        entered.set()
        await asyncio.sleep(60)
        return b""

    async with serve(hang) as (_, service, call):
        task = asyncio.create_task(call(method, b"hello"))
        await entered.wait()
        task.cancel()
        async with within(2):
            await service.closed.wait()
        assert task.cancelled()


async def test_unknown_method_is_unimplemented(serve):
    async with serve(echo) as (_, _, call):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call.channel.unary_unary("/test.Echo/Nothing")(b"", timeout=DEADLINE_SECONDS)
    assert BatonError.from_rpc_error(failed.value).reason is Reason.UNIMPLEMENTED


def test_errors_of_synchronous_calls_are_read_too(serve):
    async def scenario():
        async def refuse(request, context):
            raise BatonError(Reason.MODEL_NOT_FOUND, "no such model", field="model")

        def ask(address):
            with grpc.insecure_channel(address) as channel:
                channel.unary_unary("/test.Echo/UnaryUnary")(b"", timeout=DEADLINE_SECONDS)

        async with serve(refuse) as (server, _, _):
            with pytest.raises(grpc.RpcError) as failed:
                await asyncio.to_thread(ask, server.address)
            return BatonError.from_rpc_error(failed.value)

    error = asyncio.run(scenario())
    assert (error.reason, error.field) == (Reason.MODEL_NOT_FOUND, "model")


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "é", "x" * 129])
def test_request_id_that_cannot_be_written_to_logs_is_not_taken(text):
    assert clean_request_id(text) == ""


def test_usable_request_id_is_taken_as_it_is():
    assert clean_request_id("req-Ab_1:2/3") == "req-Ab_1:2/3"
