"""Asks a process directly whether it lives."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.rpc.channels import open_channel
from baton.rpc.server import INCARNATION_KEY, LIVENESS

PROBE_SECONDS = 0.8

ProbeFunction = Callable[[str, str], Awaitable[bool]]
"""Takes an address and an incarnation, answers within a second whether that process lives."""


async def answers(address: str, incarnation: str) -> bool:
    """Whether the process of this incarnation answers at `host:port` within 0.8 s.

    A process that has as many calls as it serves at once lives; another process that got the
    address since does not count.
    """
    channel = open_channel(address)
    request = health_pb2.HealthCheckRequest(service=LIVENESS)
    call: Any = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PROBE_SECONDS)
    try:
        response = await call
        found = dict(await call.trailing_metadata()).get(INCARNATION_KEY)
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    finally:
        call.cancel()
        await channel.close(None)
    same = not found or not incarnation or found == incarnation
    return same and bool(response.status == health_pb2.HealthCheckResponse.SERVING)
