"""Direct liveness probes of instances, beside what etcd holds."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.cluster.membership import Change, Membership, Probe
from baton.rpc.channels import open_channel
from baton.rpc.server import INCARNATION_KEY, LIVENESS

MAX_PROBES = 64
"""Probes that run at once; more wait their turn."""

LivenessProbe = Callable[[str, str], Awaitable[bool]]
"""Takes an address and an incarnation, returns soon whether that process lives."""


async def is_alive(address: str, incarnation: str, seconds: float) -> bool:
    """Return whether the process of this incarnation answers at `host:port` within so long.

    Another process that got the address since does not count.
    """
    channel = open_channel(address)
    request = health_pb2.HealthCheckRequest(service=LIVENESS)
    call: Any = health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
    try:
        response = await call
        found = dict(await call.trailing_metadata()).get(INCARNATION_KEY)
    except grpc.aio.AioRpcError:
        return False
    finally:
        call.cancel()
        await channel.close(None)
    same = not found or not incarnation or found == incarnation
    return same and bool(response.status == health_pb2.HealthCheckResponse.SERVING)


class Prober:
    """Runs the probes that a membership asks for, at most MAX_PROBES at once. One loop owns it.

    Args:
        membership: says which instances to probe, and takes in the results.
        probe: returns whether an instance lives.
        publish: called with what each result changed.
    """

    def __init__(
        self,
        membership: Membership,
        probe: LivenessProbe,
        publish: Callable[[list[Change]], None],
    ) -> None:
        self._membership = membership
        self._probe = probe
        self._publish = publish
        self._running = 0
        self._wakeup = asyncio.Event()

    def wake(self) -> None:
        """Have `run` look for probes that are due."""
        self._wakeup.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                free = MAX_PROBES - self._running
                for probe in self._membership.start_probes(clock(), free):
                    self._running += 1
                    group.create_task(self._run_probe(probe))
                at = self._membership.next_probe_at() if self._running < MAX_PROBES else None
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(at):
                        await self._wakeup.wait()

    async def _run_probe(self, probe: Probe) -> None:
        answered = await self._probe(probe.address, probe.incarnation)
        self._running -= 1
        now = asyncio.get_running_loop().time()
        self._publish(self._membership.on_probed(probe, answered, now))
        self._wakeup.set()
