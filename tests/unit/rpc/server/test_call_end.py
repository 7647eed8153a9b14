"""Every call ends once in the counters, whatever ended it."""

import asyncio
from collections import Counter

import grpc
import pytest

from baton.errors import BatonError, Reason, abort
from baton.rpc.server.guard import CallEnd
from baton.telemetry.context import request_id
from baton.telemetry.metrics import render
from bench.harness.metrics import parse_metrics
from tests.support.clock import DEADLINE_SECONDS
from tests.support.wait import eventually


def samples() -> dict[str, float]:
    return parse_metrics(render()[0].decode())


class Ends(list[CallEnd]):
    """What a server's `on_call_end` was given."""

    def __init__(self) -> None:
        super().__init__()
        self.request_ids: list[str] = []

    def __call__(self, end: CallEnd) -> None:
        self.append(end)
        self.request_ids.append(request_id.get())

    def reasons(self) -> Counter[str]:
        return Counter("ok" if end.error is None else end.error.reason.name for end in self)


async def act(request, context):
    match request:
        case b"refuse":
            raise BatonError(Reason.NO_CAPACITY, "64 of 64 slots", field="n")
        case b"abort":
            await abort(context, BatonError(Reason.DRAINING, "going"))
        case b"abort plainly":
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing")
        case b"bug":
            raise KeyError("secret")
        case b"hang":
            await asyncio.sleep(60)
    return request


@pytest.mark.parametrize("method", ["UnaryUnary", "UnaryStream", "UnaryWrites", "StreamStream"])
async def test_every_end_is_told_once_with_its_reason(serve, method):
    ends = Ends()
    async with serve(act, on_call_end=ends, max_message_bytes=65536) as (_, _, call):
        before = samples()
        metadata = (("x-request-id", "req-1"),)
        for request in (b"fine", b"refuse", b"abort", b"abort plainly", b"bug"):
            try:
                await call(method, request, metadata=metadata)
            except grpc.aio.AioRpcError:
                continue
        hanging = asyncio.create_task(call(method, b"hang", metadata=metadata))
        active = f'baton_rpc_calls_active{{method="/test.Echo/{method}"}}'
        await eventually(lambda: samples().get(active) == 1, 5)
        hanging.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await call(method, b"hang", metadata=metadata, timeout=0.2)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: len(ends) == 7, 5)
        assert ends.reasons() == Counter(
            ok=1, NO_CAPACITY=1, DRAINING=1, NOT_FOUND=1, INTERNAL=1, CANCELLED=1, DEADLINE=1
        )
        assert {end.method for end in ends} == {f"/test.Echo/{method}"}
        assert set(ends.request_ids) == {"req-1"}
        after = samples()
        for code in ("OK", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "NOT_FOUND", "INTERNAL"):
            name = f'baton_rpc_calls_total{{code="{code}",method="/test.Echo/{method}"}}'
            assert after[name] - before.get(name, 0) == 1, name
        assert samples()[active] == 0


async def test_what_gets_no_handler_is_told_too(serve):
    ends, release = Ends(), asyncio.Event()

    async def hold(request, context):
        await release.wait()
        return request

    limits = {"max_concurrent": 1, "max_message_bytes": 65536}
    async with serve(hold, on_call_end=ends, **limits) as (_, _, call):
        for method, message in (("UnaryUnary", bytes(70_000)), ("Nothing", b"")):
            with pytest.raises(grpc.aio.AioRpcError):
                await call.channel.unary_unary(f"/test.Echo/{method}")(
                    message, timeout=DEADLINE_SECONDS
                )
        held = asyncio.create_task(call("UnaryUnary", b""))
        active = 'baton_rpc_calls_active{method="/test.Echo/UnaryUnary"}'
        await eventually(lambda: samples().get(active) == 1, 5)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call("UnaryUnary", b"")
        assert BatonError.from_rpc_error(failed.value).retry_after == 1.0
        release.set()
        await held
        await eventually(lambda: len(ends) == 4, 5)
    assert ends.reasons() == Counter(BODY_TOO_LARGE=1, UNIMPLEMENTED=1, OVERLOADED=1, ok=1)
    assert "/test.Echo/Nothing" not in {end.method for end in ends}  # users choose it freely


async def test_message_that_is_no_message_is_refused(serve):
    async with serve(act) as (_, _, call):
        check = call.channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await check(b"\xff\xff\xff", timeout=DEADLINE_SECONDS)
    assert BatonError.from_rpc_error(failed.value).reason is Reason.MALFORMED_BODY
