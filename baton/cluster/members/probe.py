"""Direct liveness probes of instances, in addition to the records in etcd."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from grpc_health.v1 import health_pb2

from baton.cluster.members.membership import Liveness, Membership, MembershipChange, Probe
from baton.errors import BatonError
from baton.rpc.channel.channel import Channel
from baton.rpc.server.health import INCARNATION_KEY, LIVENESS
from baton.rpc.timing.loop_watch import timeout

_SERVING = health_pb2.HealthCheckResponse.SERVING
_CHECK = "/grpc.health.v1.Health/Check"
_INCARNATION = INCARNATION_KEY.encode()
PAUSE_SECONDS = 30.0
"""Longest pause of this process itself that does not invalidate a running probe."""
MAX_PROBES = 64
"""Probes that run at the same time; others wait their turn."""

LivenessProbe = Callable[[str, str], Awaitable[Liveness]]
"""Takes an address and an incarnation; returns soon whether that process is alive."""


async def liveness(address: str, incarnation: str, seconds: float) -> Liveness:
    """Return whether the process of this incarnation responds at `host:port` within `seconds`.

    A different process that has taken over the address does not count.
    """
    # Otherwise a slow connection would look dead, like an address that never receives data.
    channel = Channel(address, patience_seconds=PAUSE_SECONDS)
    check = channel.unary_stream(  # the trailers are needed too
        _CHECK,
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    call = check(health_pb2.HealthCheckRequest(service=LIVENESS), timeout=seconds + PAUSE_SECONDS)
    try:
        async with timeout(seconds):
            response = await call.read()
            await call.read()
            found = dict(call.trailers).get(_INCARNATION, b"").decode()
    except TimeoutError:
        return "silent"
    except BatonError:
        return "dead"
    finally:
        call.cancel()
        await channel.close()
    same = not found or not incarnation or found == incarnation
    return "alive" if same and response.status == _SERVING else "dead"


class Prober:
    """Runs the probes that a membership requests, at most MAX_PROBES at a time. Owned by one loop.

    Args:
        membership: supplies the instances to probe, and handles the results.
        probe: returns whether an instance is alive.
        publish: called with the changes of each result.
    """

    def __init__(
        self,
        membership: Membership,
        probe: LivenessProbe,
        publish: Callable[[list[MembershipChange]], None],
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
        found = await self._probe(probe.address, probe.incarnation)
        self._running -= 1
        now = asyncio.get_running_loop().time()
        self._publish(self._membership.on_probed(probe, found, now))
        self._wakeup.set()
