"""A cluster for benchmarks: Baton's own processes on this machine, and what they cost."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from baton.cluster import keys
from baton.cluster.etcd import Etcd
from baton.cluster.local_etcd import LocalEtcd
from baton.internal.v1.cluster_pb2 import Instance

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "bench"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Member:
    """One process: its id, its service and its own settings."""

    id: str
    service: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Running:
    pid: int
    instance: Instance


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, user and system, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_bytes(pid: int) -> int:
    """Memory that a process has resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Processes:
    """Starts an etcd and the members in their order; ends them all."""

    def __init__(
        self, directory: Path, members: Sequence[Member], settings: Mapping[str, str]
    ) -> None:
        """Keep logs and etcd's data in `directory`; `settings` are those of every member."""
        self._directory = directory
        self._members = members
        self._settings = settings
        self._etcd = LocalEtcd(directory / "etcd")
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self.running: dict[str, Running] = {}

    async def __aenter__(self) -> "Processes":
        try:
            await self._etcd.start()
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    def log(self, member_id: str) -> Path:
        """Where a member's lines go."""
        return self._directory / f"{member_id}.log"

    async def _start(self) -> None:
        shared = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "BATON_PARENT_PID": str(os.getpid()),
            "BATON_ETCD_ENDPOINTS": ",".join(self._etcd.endpoints),
            "BATON_ETCD_CLUSTER": CLUSTER,
            "BATON_GRPC_PORT": "0",
            **self._settings,
        }
        for member in self._members:
            with self.log(member.id).open("wb") as log:
                self._children[member.id] = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", f"services.{member.service}"),
                    cwd=ROOT,
                    env={**shared, "BATON_INSTANCE_ID": member.id, **member.settings},
                    stdout=log,
                    stderr=log,
                )
        async with Etcd(self._etcd.endpoints) as etcd, asyncio.timeout(_START_SECONDS):
            for member in self._members:
                child = self._children[member.id]
                while not (value := await etcd.get(keys.instance(CLUSTER, member.id))):
                    if child.returncode is not None:
                        raise RuntimeError(
                            f"{member.id} ended: {self.log(member.id).read_text()[-2000:]}"
                        )
                    await asyncio.sleep(0.05)
                self.running[member.id] = Running(child.pid, keys.decode(Instance, value))

    async def _stop(self) -> None:
        for child in reversed(self._children.values()):
            if child.returncode is None:
                child.terminate()
        for child in self._children.values():
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()
        await self._etcd.stop()
