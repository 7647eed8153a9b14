"""Names of projects, which are stored only in etcd."""

import asyncio
from collections.abc import Mapping

from baton.cli.shared.cluster_address import ClusterAddress
from baton.cli.shared.errors import CommandError
from baton.cluster.etcd import certificate
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Project

_SECONDS = 5.0
_PREFIX = "proj_"


class ProjectNames:
    """Projects as stored in etcd; none, if it does not respond.

    Args:
        cluster: cluster of the records, as the operator named it or as it runs here; None: unknown.
    """

    def __init__(self, cluster: ClusterAddress | None) -> None:
        self._projects: Mapping[str, Project] = {}
        self.problem = ""
        """Why no names are known."""
        if cluster is None:
            self.problem = "no cluster is named"
            return
        try:
            found = asyncio.run(_projects(cluster.endpoints, cluster.name))
        except (EtcdError, TimeoutError, ValueError) as error:
            self.problem = str(error) or "etcd is unreachable"
            return
        self._projects = {one.id: one for one in found}

    def name(self, ident: str) -> str:
        """Return the name of a project; its ID if the name is unknown."""
        project = self._projects.get(ident)
        return ident if project is None else project.name

    def ids(self, tenant: str, wanted: str) -> tuple[str, ...]:
        """Return the IDs of projects that match a name or an ID.

        Raises:
            CommandError: there is none, or names are unknown.
        """
        if wanted.startswith(_PREFIX):
            return (wanted,)
        found = [
            one.id
            for one in self._projects.values()
            if one.name == wanted and tenant in ("", one.tenant)
        ]
        if not found and self.problem:
            raise CommandError(
                f"--project {wanted!r} is a name, and names need etcd: set the project's id, or "
                "name the cluster with --cluster or its etcd with --etcd-endpoint."
            )
        if not found:
            raise CommandError(f"--project: project {wanted!r} does not exist.")
        return tuple(found)


async def _projects(endpoints: tuple[str, ...], cluster: str) -> list[Project]:
    async with (
        asyncio.timeout(_SECONDS),
        Etcd(endpoints, certificate=certificate.current()) as etcd,
    ):
        return await Administration(etcd, cluster).projects()
