"""gRPC's interoperability cases (grpc/doc/interop-test-descriptions) with grpcio's clients."""

import asyncio

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.wrappers_pb2 import BytesValue, UInt64Value
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from tests.support.grpc.clients import KINDS, OPTIONS, SECONDS, client
from tests.support.grpc.echo_service import INITIAL, SERVICE, STATUS_DETAILS, TRAILING
from tests.support.wait import eventually

Code = grpc.StatusCode
LARGE = (271_828, 314_159)
SIZES = (31415, 9, 2653, 58979)


@pytest.fixture(params=KINDS)
async def calls(request, address):
    """One of grpcio's clients."""
    async with client(request.param, address) as opened:
        yield opened


def sizes(*wanted: int) -> ListValue:
    return ListValue(values=[Value(number_value=size) for size in wanted])


async def test_empty_unary(calls):
    result = await calls.call("Empty", Empty())
    assert (result.messages, result.code) == ([Empty()], Code.OK)


@pytest.mark.parametrize("size", [0, 1, 16_384, *LARGE, 4 * 2**20 - 16])
async def test_large_unary(calls, size):
    payload = BytesValue(value=bytes(range(256)) * (size // 256) + bytes(size % 256))
    result = await calls.call("Unary", payload)
    assert result.messages == [payload]


async def test_client_streaming(calls):
    result = await calls.call("Collect", *(BytesValue(value=bytes(size)) for size in SIZES))
    assert result.messages == [UInt64Value(value=sum(SIZES))]


async def test_client_streaming_of_nothing(calls):
    assert (await calls.call("Collect")).messages == [UInt64Value()]


async def test_server_streaming(calls):
    result = await calls.call("Produce", sizes(*SIZES))
    assert [len(message.value) for message in result.messages] == list(SIZES)
    assert result.code is Code.OK


async def test_server_streaming_of_many(calls):
    result = await calls.call("Produce", sizes(*range(2000)))
    assert [len(message.value) for message in result.messages] == list(range(2000))


async def test_server_streaming_of_nothing(calls):
    result = await calls.call("Produce", sizes())
    assert (result.messages, result.code) == ([], Code.OK)


async def test_ping_pong(address):
    async with client("aio", address) as opened:
        call = opened.stub.PingPong(timeout=SECONDS)
        for size in SIZES:
            await call.write(UInt64Value(value=size))
            assert len((await call.read()).value) == size
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is Code.OK


async def test_empty_stream(calls):
    result = await calls.call("PingPong")
    assert (result.messages, result.code) == ([], Code.OK)


async def test_client_compressed_unary(calls):
    payload = BytesValue(value=bytes(LARGE[0]))
    result = await calls.call("Unary", payload, compression=grpc.Compression.Gzip)
    assert result.messages == [payload]


async def test_client_compressed_streaming(calls):
    messages = [BytesValue(value=bytes(size)) for size in SIZES]
    result = await calls.call("Collect", *messages, compression=grpc.Compression.Gzip)
    assert result.messages == [UInt64Value(value=sum(SIZES))]


async def test_custom_metadata(calls):
    value = bytes(range(256))
    given = ((INITIAL, "a, b"), (TRAILING, value))
    result = await calls.call("Unary", BytesValue(value=b"x"), metadata=given)
    assert result.initial[INITIAL] == "a, b"
    assert result.trailing[TRAILING] == value


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 1000])
async def test_metadata_of_bytes_of_each_length(calls, size):
    given = ((TRAILING, bytes(size)),)
    assert (await calls.call("Unary", BytesValue(), metadata=given)).trailing[TRAILING] == bytes(
        size
    )


@pytest.mark.parametrize(
    "message",
    [
        "test status message",
        "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n",
        "100 % of %41 %zz %",
        "ü" * 200,
        "",
    ],
)
async def test_status_code_and_message(calls, message):
    result = await calls.call("Fail", Status(code=2, message=message))
    assert (result.code, result.details) == (Code.UNKNOWN, message)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not Code.OK])
async def test_every_status_code(address, code):
    async with client("aio", address) as opened:
        assert (await opened.call("Fail", Status(code=code.value[0], message="m"))).code is code


async def test_status_details(calls):
    details = Any()
    details.Pack(ErrorInfo(reason="A_REASON", domain="test", metadata={"key": "välue"}))
    status = Status(code=9, message="no", details=[details])
    result = await calls.call("Fail", status)
    assert result.code is Code.FAILED_PRECONDITION
    assert Status.FromString(result.trailing[STATUS_DETAILS]) == status


@pytest.mark.parametrize(
    "path", [f"/{SERVICE}/Nothing", "/baton.test.Nothing/Empty", "/", "//", "/x"]
)
async def test_what_is_not_implemented(address, path):
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call = channel.unary_unary(path)(b"", timeout=SECONDS)
        assert await call.code() is Code.UNIMPLEMENTED


async def test_cancel_after_begin(echo):
    service, address = echo
    async with client("aio", address) as opened:
        call = opened.stub.Stall(timeout=SECONDS)
        await call.write(BytesValue(value=b"x"))
        await eventually(lambda: service.active == 1)
        call.cancel()
        assert await call.code() is Code.CANCELLED
        await eventually(lambda: service.active == 0)


async def test_cancel_after_first_response(echo):
    service, address = echo
    async with client("aio", address) as opened:
        call = opened.stub.Hold(Empty(), timeout=SECONDS)
        await call.read()
        assert service.active == 1
        call.cancel()
        assert await call.code() is Code.CANCELLED
        await eventually(lambda: service.active == 0)


async def test_a_client_that_is_gone(echo):
    service, address = echo
    async with client("aio", address) as opened:
        held = [opened.stub.Hold(Empty(), timeout=SECONDS) for _ in range(20)]
        await asyncio.gather(*(call.read() for call in held))
        assert service.active == 20
    await eventually(lambda: service.active == 0)


async def test_timeout_on_sleeping_server(echo, calls):
    service, _ = echo
    result = await calls.call("Sleep", Duration(seconds=60), timeout=0.05)
    assert result.code is Code.DEADLINE_EXCEEDED
    await eventually(lambda: service.active == 0)


async def test_a_message_over_the_limit(calls):
    result = await calls.call("Unary", BytesValue(value=bytes(5 * 2**20)))
    assert result.code is Code.RESOURCE_EXHAUSTED


async def test_concurrent_calls(address):
    async with client("aio", address) as opened:
        one = opened.call("Unary", BytesValue(value=bytes(100_000)))
        results = await asyncio.gather(
            one, *(opened.call("Produce", sizes(*SIZES)) for _ in range(200))
        )
        assert {result.code for result in results} == {Code.OK}
