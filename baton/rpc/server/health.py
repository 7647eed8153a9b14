"""grpc.health.v1, extended with the identity of the process that answers."""

import asyncio
from typing import Any

from grpc_health.v1 import health, health_pb2

INCARNATION_KEY = "baton-incarnation"
"""Trailing metadata of health checks: the incarnation of the process that answers."""
LIVENESS = "liveness"
READINESS = "readiness"


class Health(health.aio.HealthServicer):  # type: ignore[misc,name-defined]  # not in the stubs
    """Health service that also identifies the process: an address may have been taken over."""

    def __init__(self, incarnation: str) -> None:
        super().__init__()
        self.closing = asyncio.Event()
        """Set when the server drains, to end watches, which would otherwise never end."""
        self._metadata = ((INCARNATION_KEY, incarnation),)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802
        context.set_trailing_metadata(self._metadata)
        return await super().Check(request, context)

    async def List(self, _: health_pb2.HealthListRequest, context: Any) -> Any:  # noqa: N802
        context.set_trailing_metadata(self._metadata)
        return health_pb2.HealthListResponse(
            statuses={
                name: health_pb2.HealthCheckResponse(status=status)
                for name, status in self._server_status.items()
            }
        )

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        watching = asyncio.ensure_future(super().Watch(request, context))
        closing = asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait((watching, closing), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            closing.cancel()
            await asyncio.wait((watching, closing))
