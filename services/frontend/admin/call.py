"""One administration request: its caller, its subject, and the records that it finds."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from baton.cluster.etcd.client import Etcd, EtcdError
from baton.errors import BatonError, Reason
from baton.telemetry.context import request_id
from baton.telemetry.logs import get_logger
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory.directory import Directory
from baton.tenancy.directory.principal import Principal
from baton.tenancy.directory.watch import DirectoryWatch
from baton.tenancy.records.audit import Actor, AuditLog
from baton.tenancy.records.store import RecordStore
from baton.tenancy.records.tenants import Key, Project, Scope, ServiceAccount
from services.frontend.admin.usage.reader import UsageReader

_VISIBLE_SECONDS = 1.0

log = get_logger(__name__)


class Organizations:
    """The backend of administration: etcd for changes, the in-memory directory for reads.

    Lives on the event loop; one per frontend.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        watch: keeps the directory current.
        usage: reads usage records.
        adapter_locations: directories below which adapters may be.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        watch: DirectoryWatch,
        usage: UsageReader,
        adapter_locations: Sequence[str] = (),
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._watch = watch
        self._store = RecordStore(etcd, cluster)
        self.audit = AuditLog(etcd, cluster)
        self.usage = usage
        self.adapter_locations = adapter_locations

    @property
    def known(self) -> Directory:
        """The directory as known to this frontend; never waits."""
        return self._watch.directory

    async def directory(self, tenant: str) -> Directory:
        """Return the directory, once it has all earlier changes of a tenant.

        Raises:
            EtcdError: etcd is unavailable.
        """
        await self._watch.reach(await self._store.revision(tenant))
        return self._watch.directory

    async def wait_visible(self, tenant: str) -> None:
        """Wait, for a moment at most, until this frontend knows a change that was just made: a
        client may use a new key here as soon as it receives it."""
        try:
            async with asyncio.timeout(_VISIBLE_SECONDS):
                await self.directory(tenant)
        except (EtcdError, TimeoutError) as error:
            log.warning("organization.change.not_seen", tenant=tenant, error=str(error))

    def administration(self, who: Principal) -> Administration:
        """Return the writer of changes in a caller's name."""
        actor = Actor(who.key.id, who.key.service_account, request_id.get())
        return Administration(
            self._etcd,
            self._cluster,
            store=self._store,
            actor=actor,
            list_projects=self._projects,
        )

    def adapters(self, who: Principal) -> AdapterAdministration:
        """Return the writer of adapters' records in a caller's name."""
        actor = Actor(who.key.id, who.key.service_account, request_id.get())
        return AdapterAdministration(self._etcd, self._cluster, actor=actor)

    async def _projects(self, tenant: str) -> list[Project]:
        directory = await self.directory(tenant)
        return [directory.projects[ident] for ident in directory.projects_of.of(tenant)]


@dataclass(frozen=True, slots=True)
class AdminCall:
    """One request. Its tenant is its key's: other tenants' records do not exist for it."""

    organizations: Organizations
    who: Principal
    ids: Sequence[str]
    """Ids in the path, in order."""
    query: bytes
    body: bytes
    accept: str = ""
    """The accepted content types, from the header."""
    of_project: bool = False
    """Whether the first id is a project's."""

    @property
    def tenant(self) -> str:
        return self.who.tenant.id

    @property
    def admin(self) -> Administration:
        """The writer of changes in the caller's name."""
        return self.organizations.administration(self.who)

    async def directory(self) -> Directory:
        """Return the directory with all changes of the tenant."""
        return await self.organizations.directory(self.tenant)

    def project(self, directory: Directory) -> Project:
        """Return the project that the path names first.

        Raises:
            BatonError: NOT_FOUND: it does not exist, or is another tenant's.
        """
        found = directory.projects.get(self.ids[0])
        if found is None or found.tenant != self.tenant:
            missing("project", self.ids[0])
        return found

    def account(self, directory: Directory) -> ServiceAccount:
        """Return the service account that the path names second; errors as for `project`."""
        project = self.project(directory)
        found = directory.accounts.get(self.ids[1])
        if found is None or found.project != project.id or found.deleted_seconds:
            missing("service account", self.ids[1])
        return found

    def key(self, directory: Directory) -> Key:
        """Return the project's key that the path names second; errors as for `project`."""
        project = self.project(directory)
        found = directory.keys.get(self.ids[1])
        if found is None or found.project != project.id or not is_live(directory, found):
            missing("API key", self.ids[1])
        if Scope.ADMIN in found.scopes:
            missing("API key", self.ids[1])
        return found

    def admin_key(self, directory: Directory) -> Key:
        """Return the admin key that the path names; errors as for `project`."""
        found = directory.keys.get(self.ids[0])
        if found is None or Scope.ADMIN not in found.scopes or not is_live(directory, found):
            missing("admin API key", self.ids[0])
        project = directory.projects.get(found.project)
        if project is None or project.tenant != self.tenant:
            missing("admin API key", self.ids[0])
        return found


def is_live(directory: Directory, key: Key) -> bool:
    """Return whether a key is visible: neither revoked, nor its owner deleted."""
    if key.service_account:
        account = directory.accounts.get(key.service_account)
        if account is None or account.deleted_seconds:
            return False
    return not key.revoked_seconds


def missing(what: str, ident: str) -> NoReturn:
    """Raise NOT_FOUND for something that does not exist for the caller."""
    raise BatonError(Reason.NOT_FOUND, f"{what} {ident[:64]!r} does not exist")
