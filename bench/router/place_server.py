"""A router's Place service without a cluster, for bench.router.place: `place_server FLEET`."""

import asyncio
import sys

import uvloop

from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from baton.telemetry import logs
from bench.router.fleet import FLEETS, NO_GATE, Roles, fleet
from services.router.api.dispatcher import QueryDispatcher
from services.router.api.service import SERVICE_NAME, RouterService
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.placement_service import PlacementService


async def serve(roles: Roles) -> None:
    """Serve a fleet until standard input ends; prints the address."""
    logs.configure("bench", "bench", "warning")
    async with Server(GrpcSettings(port=0), "bench") as server:
        service = RouterService(
            QueryDispatcher(PlacementService(fleet(roles), scorer=choose_scorer().taken), NO_GATE)
        )
        server.add(service.register, SERVICE_NAME)
        await server.start()
        service.open()
        sys.stdout.write(server.address + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(FLEETS[sys.argv[1]]))
