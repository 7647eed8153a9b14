"""Keeps one container of a pod running, and knows by its probes how it is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.k8s.pods.containers.container import Container
from tests.k8s.pods.containers.podman import Podman, PodmanError
from tests.k8s.pods.objects.environment import ConfigError
from tests.k8s.pods.probes.checks import check
from tests.k8s.pods.probes.state import ProbeState, Timing

FIRST_BACK_OFF, LAST_BACK_OFF = 0.5, 8.0
"""Seconds before a container that ended is started again; kubelet waits 10 to 300."""
LEAST_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """What a container needs of its pod."""

    podman: Podman
    sandbox: str
    """Name of podman's pod."""
    address: str
    logs: Path
    grace: float
    arguments: Callable[[Mapping[str, Any]], Awaitable[list[str]]]
    """Makes those of `podman run` from a container's spec."""
    note: Callable[[str], None]
    """Takes events, for whom looks for what went wrong."""
    changed: Callable[[], None]


class Runner:
    """One container of a pod, through all its restarts.

    Args:
        spec: of the container.
        place: its pod.
    """

    def __init__(self, spec: Mapping[str, Any], place: Place) -> None:
        self.name: str = spec["name"]
        self.spec = spec
        self._place = place
        self.container: Container | None = None
        self.starts = 0
        self.last_exit_code: int | None = None
        self.ready = False
        self.started = asyncio.Event()
        """It runs, and its startup probe succeeded."""
        self._stopping = asyncio.Event()
        self._start = asyncio.Lock()

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self.starts - 1)

    async def run(self, *, once: bool = False) -> None:
        """Run the container again and again until it is stopped; `once`: until it succeeds."""
        back_off = FIRST_BACK_OFF
        while not self._stopping.is_set():
            code = await self._run_one()
            self.started.clear()
            self._set_ready(False)
            if self._stopping.is_set():
                return
            if code is not None:
                self.last_exit_code = code
                self._place.note(f"container {self.name} ended with exit code {code}")
            if once and code == 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(back_off):
                    await self._stopping.wait()
            back_off = min(LAST_BACK_OFF, back_off * 2)

    async def stop(self, deadline: float, after: Awaitable[object] | None = None) -> None:
        """End the container, and do not start it again.

        Args:
            deadline: when it is killed, of the loop's clock.
            after: before whose end it gets no SIGTERM: for sidecars.
        """
        self._stopping.set()
        async with self._start:
            container = self.container
        loop = asyncio.get_running_loop()
        if container is not None:
            await self._pre_stop(container, deadline - loop.time())
        if after is not None:
            await after
        if container is None:
            return
        seconds = max(LEAST_GRACE_SECONDS, deadline - loop.time())
        if not await container.stop(seconds):
            self._place.note(f"container {self.name} was killed after its grace period")

    async def kill(self) -> None:
        """End the container at once, and do not start it again."""
        self._stopping.set()
        async with self._start:
            if self.container is not None:
                self.container.kill()

    async def _run_one(self) -> int | None:
        """Run the container until it ends; return its exit code, or None: it did not start."""
        name = f"{self._place.sandbox}-{self.name}-{self.starts}"
        log = self._place.logs / f"{self.name}-{self.starts}.log"
        container = Container(self._place.podman, name, log)
        async with self._start:
            if self._stopping.is_set():
                return None
            self.starts += 1
            try:
                arguments = await self._place.arguments(self.spec)
                await container.start(self._place.sandbox, arguments)
            except (ConfigError, PodmanError) as error:
                self._place.note(f"container {self.name} did not start: {error}")
                await container.remove()
                return None
            self.container = container
        probing = asyncio.create_task(self._probe(container))
        try:
            return await container.wait()
        finally:
            self.container = None
            probing.cancel()
            await asyncio.wait([probing])
            await container.remove()
            if not probing.cancelled():
                probing.result()

    async def _probe(self, container: Container) -> None:
        began = asyncio.get_running_loop().time()
        if "startupProbe" in self.spec and not await self._startup(container, began):
            return
        self.started.set()
        if "readinessProbe" not in self.spec:
            self._set_ready(True)
        self._place.changed()
        async with asyncio.TaskGroup() as group:
            if "livenessProbe" in self.spec:
                group.create_task(self._liveness(container, began))
            if "readinessProbe" in self.spec:
                group.create_task(self._readiness(container, began))

    async def _startup(self, container: Container, began: float) -> bool:
        state = ProbeState(Timing.of(self.spec["startupProbe"]), holds=False)
        async for wrong in self._tries("startupProbe", container, began):
            if state.record(not wrong):
                break
        if not state.holds:
            await self._restart(container, f"startup probe: {wrong}")
        return state.holds

    async def _liveness(self, container: Container, began: float) -> None:
        state = ProbeState(Timing.of(self.spec["livenessProbe"]), holds=True)
        async for wrong in self._tries("livenessProbe", container, began):
            state.record(not wrong)
            if self._stopping.is_set():
                return
            if not state.holds:
                await self._restart(container, f"liveness probe: {wrong}")
                return

    async def _readiness(self, container: Container, began: float) -> None:
        state = ProbeState(Timing.of(self.spec["readinessProbe"]), holds=False)
        async for wrong in self._tries("readinessProbe", container, began):
            state.record(not wrong)
            if self.ready and not state.holds:
                self._place.note(f"container {self.name} is not ready: {wrong}")
            self._set_ready(state.holds)

    async def _tries(self, kind: str, container: Container, began: float) -> AsyncIterator[str]:
        """Try a probe in each of its periods, and yield what was wrong."""
        probe, loop = self.spec[kind], asyncio.get_running_loop()
        timing = Timing.of(probe)
        at = began + timing.initial_delay
        while True:
            await asyncio.sleep(at - loop.time())
            yield await self._try(probe, container, timing.timeout)
            at = max(at + timing.period, loop.time())

    async def _try(self, probe: Mapping[str, Any], container: Container, seconds: float) -> str:
        async def run(command: list[str], seconds: float) -> int:
            return (await container.execute(command, seconds))[0]

        return await check(probe, self.spec, self._place.address, run, seconds)

    async def _restart(self, container: Container, why: str) -> None:
        self._place.note(f"container {self.name} is restarted: {why}")
        deadline = asyncio.get_running_loop().time() + self._place.grace
        await self._pre_stop(container, self._place.grace)
        await container.stop(deadline - asyncio.get_running_loop().time())

    async def _pre_stop(self, container: Container, seconds: float) -> None:
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if hook is None or seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._hook(hook, container, seconds)
        except TimeoutError:
            self._place.note(f"container {self.name}: preStop took its whole grace period")

    async def _hook(self, hook: Mapping[str, Any], container: Container, seconds: float) -> None:
        ended = asyncio.create_task(container.ended())
        if "sleep" in hook:
            work = asyncio.create_task(asyncio.sleep(hook["sleep"]["seconds"], ""))
        else:
            work = asyncio.create_task(self._try(hook, container, seconds))
        try:
            await asyncio.wait([ended, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done() and (wrong := work.result()):
                self._place.note(f"container {self.name}: preStop failed: {wrong}")
        finally:
            ended.cancel()
            work.cancel()

    def _set_ready(self, ready: bool) -> None:
        if ready != self.ready:
            self.ready = ready
            self._place.changed()
