"""A cluster that requires API keys: etcd, processes that can be killed, and administration."""

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from baton.cluster import keys
from baton.cluster.etcd.client import MAX_BATCH, Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.tenancy.admin.tenants import Administration
from bench.faults.setup import MODEL, cluster_settings
from bench.harness.fleet import Fleet
from bench.harness.releases import CHECKOUT, Release

CLUSTER = "local"
COUNTS = {"kvstore": 1, "router": 2, "prefill": 1, "decode": 1, "frontend": 4}


@dataclass(frozen=True)
class Scene:
    """A running cluster whose frontends require keys."""

    fleet: Fleet
    local: LocalEtcd
    etcd: Etcd
    admin: Administration
    directory: Path
    """For files; removed with its contents."""
    model: str = MODEL.name

    @property
    def grpc(self) -> list[str]:
        """Addresses of the frontends, `host:port`."""
        return [f"127.0.0.1:{one.grpc_port}" for one in self.fleet.frontends]

    @property
    def http(self) -> list[str]:
        """Base URLs of the frontends."""
        return [f"http://127.0.0.1:{one.http_port}" for one in self.fleet.frontends]


@asynccontextmanager
async def scene(
    counts: Mapping[str, int] = COUNTS,
    settings: Mapping[str, str] = {},
    engine: str = "sim",
    dtype: str = "float64",
    before: Sequence[tuple[str, bytes]] = (),
    release: Release = CHECKOUT,
) -> AsyncIterator[Scene]:
    """Run a cluster until the block exits; yield once all its processes are ready.

    Args:
        counts: number of processes by service.
        settings: environment variables of all processes; `{directory}` is the scene's directory.
        engine: `sim` or `torch`.
        dtype: dtype of the engine.
        before: tenancy records by name, which etcd contains before the processes start.
        release: the version of all processes.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        given = {key: value.format(directory=directory) for key, value in settings.items()}
        async with (
            LocalEtcd(directory / "etcd", durable=False) as local,
            Etcd(local.endpoints) as etcd,
        ):
            prefix = keys.tenancy(CLUSTER)
            for at in range(0, len(before), MAX_BATCH):
                batch = [(prefix + one, value) for one, value in before[at : at + MAX_BATCH]]
                await etcd.create_all(batch)
            own = {"BATON_AUTH_MODE": "keys", "BATON_LIMITS_DRAIN_NOTICE_SECONDS": "0"}
            wanted = {**cluster_settings(engine, dtype), **own, **given}
            fleet = Fleet(directory, local, wanted, counts, {})
            try:
                await fleet.start(*fleet.members, release=release)
                await fleet.wait_ready()
                admin = Administration(etcd, CLUSTER)
                yield Scene(fleet, local, etcd, admin, directory)
            finally:
                await fleet.stop()
