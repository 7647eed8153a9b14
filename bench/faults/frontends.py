"""How clients find frontends."""

import asyncio
import random
from typing import Protocol

from bench.harness.fleet import Fleet, Member, is_ready

PROBE_SECONDS = 0.5


class Frontends(Protocol):
    """The addresses of a cluster's frontends for clients."""

    @property
    def grpc_target(self) -> str:
        """The target of a gRPC channel."""

    def http_address(self) -> tuple[str, int]:
        """Return host and port for a new connection.

        Raises:
            ConnectionRefusedError: no frontend is ready.
        """

    async def watch(self) -> None:
        """Keep track of ready frontends until cancelled."""


class FleetFrontends:
    """The frontends of a fleet: gRPC clients know all of them, HTTP clients a ready one.

    Args:
        fleet: the fleet.
        draw: chooses a frontend.
    """

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        self._fleet = fleet
        self._draw = draw
        self._ready: list[Member] = list(fleet.frontends)

    @property
    def grpc_target(self) -> str:
        targets = ",".join(f"127.0.0.1:{one.grpc_port}" for one in self._fleet.frontends)
        return f"ipv4:{targets}"

    def http_address(self) -> tuple[str, int]:
        if not self._ready:
            raise ConnectionRefusedError("no frontend is ready")
        return "127.0.0.1", self._draw.choice(self._ready).http_port

    async def watch(self) -> None:
        """Probe each frontend repeatedly, as a Service of Kubernetes does."""
        while True:
            ready = await asyncio.gather(*map(is_ready, self._fleet.frontends))
            self._ready = [
                one for one, yes in zip(self._fleet.frontends, ready, strict=True) if yes
            ]
            await asyncio.sleep(PROBE_SECONDS)
