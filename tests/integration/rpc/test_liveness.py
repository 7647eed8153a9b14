"""Both ends of a connection notice that the other one is gone without a word, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from google.protobuf.empty_pb2 import Empty

from baton.errors import BatonError, Reason
from baton.rpc.channel.channel import Channel
from baton.rpc.transport import liveness
from baton.settings import LivenessSettings
from tests.support.clock import Stopwatch, within
from tests.support.grpc.echo_service import EMPTY, HOLD, serving
from tests.support.http2.frames import ACK, Kind, ping
from tests.support.http2.peer import connect
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

SOON = LivenessSettings(ping_seconds=0.3, answer_seconds=0.6)


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[Channel]:
    before = liveness.current()
    liveness.use(SOON)
    channel = Channel(address)
    liveness.use(before)
    async with channel:
        yield channel


async def test_a_black_hole_is_noticed_by_both_ends() -> None:
    async with (
        serving(liveness=SOON) as (service, address),
        TcpProxy(address) as proxy,
        channel_to(proxy.address) as channel,
    ):
        hold = channel.unary_stream(HOLD, Empty.SerializeToString, Empty.FromString)
        held = hold(Empty())
        await held.read()
        proxy.mute()
        watch = Stopwatch()
        async with within(2.5):
            with pytest.raises(BatonError) as caught:
                await held.read()
        assert caught.value.reason is Reason.UNAVAILABLE
        assert watch.elapsed > 0.5
        await eventually(lambda: service.active == 0, 3)


async def test_ends_that_live_are_left_alone() -> None:
    async with serving(liveness=SOON) as (service, address), channel_to(address) as channel:
        hold = channel.unary_stream(HOLD, Empty.SerializeToString, Empty.FromString)
        held = hold(Empty())
        await held.read()
        await asyncio.wait([asyncio.ensure_future(held.read())], timeout=2.0)
        assert not held.ended
        held.cancel()
        await eventually(lambda: service.active == 0)


async def test_a_pause_of_this_process_is_not_the_peers_silence() -> None:
    async with serving(liveness=SOON) as (_, address), connect(address) as peer:
        asked = await peer.wait(Kind.PING)
        time.sleep(2.0)  # noqa: ASYNC251  # as a process that is stopped
        await asyncio.sleep(0.05)  # the timers of that time are called
        peer.send(ping(asked.payload, ACK))
        assert (await peer.call(1, EMPTY)).grpc_status == "0"
