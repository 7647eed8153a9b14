"""Asks processes how they are."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ASK_SECONDS = 1.0


async def health(channel: grpc.aio.Channel, service: str = "") -> str:
    """`SERVING`, `NOT_SERVING`, or `UNREACHABLE` when there is no answer within a second."""
    request = health_pb2.HealthCheckRequest(service=service)
    call: Any = health_pb2_grpc.HealthStub(channel).Check(request, timeout=ASK_SECONDS)
    try:
        response = await call
    except grpc.aio.AioRpcError:
        return "UNREACHABLE"
    finally:
        call.cancel()
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
