"""Starts the processes of a local cluster, restarts those that die, and stops them all."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from baton.cli.cluster.local.database import POSTGRES
from baton.cli.cluster.local.output.log_lines import readable
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.processes.child import Child, exit_reason, tail
from baton.cli.cluster.local.processes.restarts import LIMIT, QUICK_SECONDS, RestartPolicy
from baton.cli.cluster.local.processes.watchdog import frozen, livez
from baton.cli.cluster.local.spec import ProcessSpec
from baton.cli.shared.cluster_view import ClusterView, watch_cluster
from baton.cli.shared.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from baton.cli.shared.render import printable
from baton.settings import StartupError

START_SECONDS = 120.0
ETCD = "etcd"
_SERVERS = (POSTGRES, ETCD)
"""Servers that Baton's processes use; in the order to stop them."""


class Supervisor:
    """A local cluster's processes.

    Call `start`, then `stop` in any case; `kill` at any time makes `stop` quick. Call them on
    the main thread: processes end with the thread that started them.

    Args:
        children: processes by id, in the order to start them; `etcd` and `postgres` if the cluster
            runs its own.
        specs: their specs, except those of the servers.
        endpoints: endpoints of etcd.
        cluster: the cluster's name.
        reporter: prints what happens.
        patience: seconds for which a process may be frozen; then it is killed and restarted.
        parked: ids of processes that run only after `add`.
    """

    def __init__(
        self,
        children: Mapping[str, Child],
        specs: Iterable[ProcessSpec],
        endpoints: tuple[str, ...],
        cluster: str,
        reporter: Reporter,
        patience: float,
        parked: Collection[str] = (),
    ) -> None:
        self._children = dict(children)
        self._stop_order = {spec.id: spec.stop for spec in specs}
        self._endpoints = endpoints
        self._cluster = cluster
        self._reporter = reporter
        self._patience = patience
        self._stack = AsyncExitStack()
        self._view: ClusterView | None = None
        self._parked = frozenset(parked)
        self._keep_tasks: dict[str, asyncio.Task[None]] = {}
        self._stop_tasks: dict[str, asyncio.Task[None]] = {}
        self._recovery_tasks: set[asyncio.Task[None]] = set()
        self._serving = False
        self._servers_started = {name: asyncio.Event() for name in _SERVERS if name in children}

    @property
    def view(self) -> ClusterView:
        """The cluster as etcd lists it; after `start`."""
        if self._view is None:
            raise RuntimeError("the supervisor was not started")
        return self._view

    async def start(self, seconds: float = START_SECONDS) -> None:
        """Start all processes concurrently and wait until they serve.

        Raises:
            CommandError: a process ended, or did not serve in time. Call `stop` then, too.
        """
        if ETCD not in self._children:
            await self._check_cluster()
        for name in self._children:
            if name not in self._parked:
                self.add(name)
        missing = set(self._stop_order) - self._parked
        serving = asyncio.create_task(self._wait_serving(missing), name="until-serving")
        try:
            done, _ = await asyncio.wait(
                (serving, *self._keep_tasks.values()),
                timeout=seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                raise CommandError(
                    f"Not ready after {seconds:g} s: {', '.join(sorted(missing))}.",
                    EXIT_FAILED,
                )
            for task in done:
                await task
        finally:
            await _cancel([serving])
        self._serving = True

    def is_wanted(self, name: str) -> bool:
        """Return whether a process runs, starts, or will be restarted."""
        return name in self._keep_tasks

    def is_given_up(self, name: str) -> bool:
        """Return whether a process died again and again, and is not restarted."""
        return name in self._keep_tasks and self._keep_tasks[name].done()

    def register(self, spec: ProcessSpec, child: Child) -> None:
        """Take one more process, which runs only after `add`."""
        self._children[spec.id] = child
        self._stop_order[spec.id] = spec.stop

    async def forget(self, name: str) -> None:
        """Drain a process, stop it, and know it no longer."""
        if self.is_wanted(name):
            self.remove(name)
        if name in self._stop_tasks:
            await asyncio.wait([self._stop_tasks[name]])
        if self._children.pop(name, None) is not None:
            del self._stop_order[name]

    async def wait_added(self, names: Iterable[str], seconds: float = START_SECONDS) -> None:
        """Wait until processes that were added serve.

        Raises:
            CommandError: one died again and again, or did not serve in time.
        """
        names = sorted(names)
        missing = set(names)
        keeping = [self._keep_tasks[name] for name in names]
        serving = asyncio.create_task(self.view.wait_serving(missing), name="until-added")
        try:
            done, _ = await asyncio.wait(
                (serving, *keeping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            await _cancel([serving])
        if serving in done:
            return
        if not done:
            late = ", ".join(sorted(missing))
            raise CommandError(f"Not ready after {seconds:g} s: {late}.", EXIT_FAILED)
        name = next(name for name in names if self._keep_tasks[name].done())
        log_path = self._children[name].log_path
        raise CommandError(
            f"{name} does not start. The last lines of {log_path}:{_indented(tail(log_path))}",
            EXIT_FAILED,
        )

    async def wait_removed(self, names: Iterable[str]) -> None:
        """Wait until processes that were removed have ended."""
        stopping = [task for name, task in self._stop_tasks.items() if name in set(names)]
        if stopping:
            await asyncio.wait(stopping)

    def add(self, name: str) -> bool:
        """Start a process that does not run; False: it is still being stopped."""
        if name in self._stop_tasks:
            return False
        task = asyncio.create_task(self._keep(name, self._children[name]), name=f"keep-{name}")
        self._keep_tasks[name] = task
        return True

    def remove(self, name: str) -> None:
        """Drain a process and stop it, in the background."""
        task = asyncio.create_task(self._remove(name, self._keep_tasks.pop(name)))
        self._stop_tasks[name] = task
        task.add_done_callback(lambda _: self._stop_tasks.pop(name))

    async def _remove(self, name: str, keep: asyncio.Task[None]) -> None:
        recovering = [task for task in self._recovery_tasks if task.get_name() == name]
        await _cancel([keep, *recovering])
        await self._children[name].stop()

    async def stop(self) -> None:
        """Drain and stop all processes: frontends, workers, stores, then Postgres and etcd."""
        self._serving = False
        await _cancel([*self._keep_tasks.values(), *self._recovery_tasks])
        groups: dict[int, list[Awaitable[None]]] = {}
        for name, order in self._stop_order.items():
            groups.setdefault(order, []).append(self._children[name].stop())
        for _, stops in sorted(groups.items()):
            await asyncio.gather(*stops)
        await asyncio.gather(*self._stop_tasks.values())
        await self._stack.aclose()
        for name in _SERVERS:
            if name in self._children:
                await self._children[name].stop()

    def kill(self) -> None:
        """Kill all processes."""
        for name, child in self._children.items():
            if (pid := child.pid) is not None:
                # Postgres' immediate shutdown: killed, it would leave its children running for a
                # while.
                number = signal.SIGQUIT if name == POSTGRES else signal.SIGKILL
                with suppress(ProcessLookupError):  # it ended just now
                    os.kill(pid, number)

    async def _check_cluster(self) -> None:
        """Check that an external etcd responds and that our instance IDs are free."""
        self._view = await self._stack.enter_async_context(
            watch_cluster(self._endpoints, self._cluster)
        )
        if not self._view.synced:
            raise CommandError(
                f"etcd is unreachable at {', '.join(self._endpoints)}: start it, or unset "
                "--etcd-endpoint and BATON_ETCD_ENDPOINTS so that `baton up` starts one."
            )
        await self._view.require_absent(self._stop_order, self._cluster)

    async def _wait_serving(self, missing: set[str]) -> None:
        if self._view is None:
            self._view = await self._stack.enter_async_context(
                watch_cluster(self._endpoints, self._cluster)
            )
        await self._view.wait_serving(missing)
        # Postgres has its schema then; frontends serve without it.
        for started in self._servers_started.values():
            await started.wait()

    async def _keep(self, name: str, child: Child) -> None:
        """Start a process, and restart it when it dies, until the policy gives up."""
        policy = RestartPolicy()
        clock = asyncio.get_running_loop().time
        while True:
            begun = clock()
            try:
                await child.start()
                if name in self._servers_started:
                    self._servers_started[name].set()
                if self._serving and name in _SERVERS:
                    self._reporter.info(f"{name} is ready again (pid {child.pid}).")
                pid = child.pid or 0
                code = await self._wait_end(name, child, pid)
            except StartupError as error:  # a server ended before it served
                if not self._serving:
                    raise CommandError(str(error)) from error
                pid, code = 0, EXIT_FAILED
            if not self._serving:
                raise _failed_to_start(name, child, code)
            self._reporter.died(name, pid, code, clock() - begun, child.log_path)
            wait = policy.died(clock() - begun)
            if wait is None:
                self._reporter.warn(
                    f"{name} exited {LIMIT} times within {QUICK_SECONDS:g} s of its start and is "
                    "not "
                    f"restarted again. The other processes keep running. Log: {child.log_path}"
                )
                return
            self._reporter.info(f"Restarting {name} in {wait:.1f} s.")
            self._report_recovery(name)
            await asyncio.sleep(wait)

    async def _wait_end(self, name: str, child: Child, pid: int) -> int:
        """Return a process's exit code; kill it if it is frozen."""
        watching = asyncio.create_task(self._kill_frozen(name, pid), name=f"watch-{name}")
        try:
            return await child.wait()
        finally:
            await _cancel([watching])

    async def _kill_frozen(self, name: str, pid: int) -> None:
        why = await frozen(pid, lambda: self._probe(name), self._patience)
        self._reporter.warn(f"Killing {name} (pid {pid}): it {why}.")
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(pid, signal.SIGKILL)
        await asyncio.Event().wait()  # the waiter for its end cancels this

    async def _probe(self, name: str) -> str:
        """Return the result of `livez` for a process; empty if it is not known to serve."""
        instance = self._view.instances.get(name) if self._view is not None else None
        if instance is None or not self._serving:
            return ""
        return await livez(instance.metrics_address, min(1.0, self._patience))

    def _report_recovery(self, name: str) -> None:
        if name in _SERVERS:
            return
        old = self.view.incarnation(name)

        async def wait_and_report() -> None:
            await self.view.wait_serving({name}, not_incarnation=old)
            self._reporter.info(f"{name} is ready again (pid {self._children[name].pid}).")

        for task in [task for task in self._recovery_tasks if task.get_name() == name]:
            task.cancel()  # it died again before it served
        task = asyncio.create_task(wait_and_report(), name=name)
        self._recovery_tasks.add(task)
        task.add_done_callback(self._recovery_tasks.discard)


def _failed_to_start(name: str, child: Child, code: int) -> CommandError:
    last = tail(child.log_path)
    if code == EXIT_USAGE and last:  # its message says what to do
        return CommandError(f"{name} cannot start: {last[-1]}", EXIT_USAGE)
    return CommandError(
        f"{name} {exit_reason(code)} while starting. The last lines of {child.log_path}:"
        f"{_indented(last)}",
        EXIT_FAILED,
    )


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"\n  | {printable(line)}" for line in readable(lines))


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
