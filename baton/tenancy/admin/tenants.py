"""Changes to tenants, projects and service accounts, made from the command line and by
frontends."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from baton.cluster.etcd.client import Etcd
from baton.cluster.tenants import CacheSalts
from baton.errors import BatonError, Reason
from baton.tenancy.admin.budgets import SpendAdministration
from baton.tenancy.admin.keys import KeyAdministration, check_active
from baton.tenancy.records.audit import OPERATOR, Actor
from baton.tenancy.records.spending import Spending
from baton.tenancy.records.store import RecordChange, RecordStore, not_found, require_valid
from baton.tenancy.records.tenants import Project, ServiceAccount, Tenant, Tier

DEFAULT_PROJECT = "default"
"""The project that is created with each tenant."""

ListProjects = Callable[[str], Awaitable[Iterable[Project]]]


class Administration(KeyAdministration):
    """Creates and changes records. Every change is one etcd transaction, which frontends and stores
    apply within a moment, and has an audit record; concurrent changes are serialized.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.
        store: store of records; None: a new one.
        actor: the author of the changes.
        list_projects: returns the current projects of a tenant; None: lists them in etcd.

    Methods raise:
        BatonError: INVALID_FIELD, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED.
        EtcdError: etcd is unavailable.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        clock: Callable[[], float] = time.time,
        *,
        store: RecordStore | None = None,
        actor: Actor = OPERATOR,
        list_projects: ListProjects | None = None,
    ) -> None:
        super().__init__(etcd, cluster, clock, store=store, actor=actor)
        self._salts = CacheSalts(etcd, cluster)
        self.spending = Spending(etcd, cluster, clock)
        """Reads spending."""
        self.spend = SpendAdministration(self._store, actor)
        """Changes budgets and alerts."""
        self._list_projects = list_projects or self.projects

    # Tenants

    async def create_tenant(
        self, ident: str, tier: Tier, kv_bytes: int = 0, **limits: Any
    ) -> Tenant:
        """Create a tenant, with a KV salt and the project `default`; `limits` by field name."""
        now = self._store.now()
        tenant = Tenant(id=ident, tier=tier, kv_bytes=kv_bytes, created_seconds=now, **limits)
        require_valid(tenant)
        await self._salts.get(ident)  # frontends need it even while etcd is unavailable

        async def plan() -> RecordChange[Tenant]:
            if await self._store.exists(Tenant, ident):
                raise BatonError(Reason.ALREADY_EXISTS, f"tenant {ident!r} already exists")
            return RecordChange("organization.created", tenant)

        await self._store.commit(ident, self._actor, plan)
        await self.create_project(ident, DEFAULT_PROJECT)
        return tenant

    async def update_tenant(self, ident: str, **changes: Any) -> Tenant:
        """Change fields of a tenant, including limits; `disabled` sets the time of disabling."""
        disabled = changes.pop("disabled", None)
        if disabled is not None:
            changes["disabled_seconds"] = self._store.now() if disabled else 0
        return await self._store.update(
            ident, self._actor, Tenant, ident, "organization.updated", lambda _: changes
        )

    async def tenants(self) -> list[Tenant]:
        """Return all tenants, sorted by ID."""
        return [record async for record in self._store.all(Tenant)]

    # Projects

    async def create_project(self, tenant: str, name: str, **limits: Any) -> Project:
        """Create a project of a tenant; `limits` by field name."""

        async def plan() -> RecordChange[Project]:
            await self._store.get(Tenant, tenant)
            await self._check_free(tenant, name)
            ident, now = self._store.new_id("proj"), self._store.now()
            project = Project(id=ident, tenant=tenant, name=name, created_seconds=now, **limits)
            return RecordChange("project.created", project)

        return await self._store.commit(tenant, self._actor, plan)

    async def update_project(self, tenant: str, name: str, **limits: int) -> Project:
        """Change limits of a project, given by name or ID; 0 removes one."""
        found = await self.find_project(tenant, name)
        return await self._change_project(found, "rate_limit.updated", limits)

    async def rename_project(self, tenant: str, name: str, new_name: str) -> Project:
        """Rename a project, given by name or ID."""
        found = await self.find_project(tenant, name)
        return await self._change_project(found, "project.updated", {"name": new_name})

    async def archive_project(self, tenant: str, name: str) -> Project:
        """Archive a project, given by name or ID: its keys are rejected, permanently."""
        found = await self.find_project(tenant, name)

        def archived(now: Project) -> dict[str, Any]:
            return {"archived_seconds": now.archived_seconds or self._store.now()}

        return await self._store.update(
            tenant, self._actor, Project, found.id, "project.archived", archived
        )

    async def projects(self, tenant: str = "") -> list[Project]:
        """Return the projects of a tenant, or all projects."""
        return [one async for one in self._store.all(Project) if tenant in ("", one.tenant)]

    async def find_project(self, tenant: str, name: str) -> Project:
        """Return the project of a tenant with a name or ID; archived ones by ID only."""
        for one in await self._list_projects(tenant):
            if one.id == name or (one.name == name and not one.archived_seconds):
                return one
        raise not_found(
            f"tenant {tenant!r} has no project {name!r}: list projects with `baton projects ls`"
        )

    # Service accounts

    async def create_account(self, project: Project, name: str) -> ServiceAccount:
        """Create a service account of a project."""

        async def plan() -> RecordChange[ServiceAccount]:
            now, _ = await self._store.get(Project, project.id)
            check_active(now)
            account = ServiceAccount(
                id=self._store.new_id("svc_acct"),
                project=project.id,
                name=name,
                created_seconds=self._store.now(),
            )
            return RecordChange("service_account.created", account, project=now)

        return await self._store.commit(project.tenant, self._actor, plan)

    async def rename_account(self, project: Project, ident: str, name: str) -> ServiceAccount:
        """Rename a service account."""
        event = "service_account.updated"
        return await self._store.update(
            project.tenant,
            self._actor,
            ServiceAccount,
            ident,
            event,
            lambda _: {"name": name},
            project,
        )

    async def delete_account(self, project: Project, ident: str) -> ServiceAccount:
        """Delete a service account: its keys are rejected, permanently."""

        def deleted(now: ServiceAccount) -> dict[str, Any]:
            return {"deleted_seconds": now.deleted_seconds or self._store.now()}

        event = "service_account.deleted"
        return await self._store.update(
            project.tenant, self._actor, ServiceAccount, ident, event, deleted, project
        )

    async def _change_project(
        self, project: Project, event: str, changes: Mapping[str, Any]
    ) -> Project:
        def change(now: Project) -> dict[str, Any]:
            check_active(now)
            return dict(changes)

        async def plan() -> RecordChange[Project]:
            if "name" in changes:
                await self._check_free(project.tenant, changes["name"], but=project.id)
            return await self._store.changed(Project, project.id, event, change)

        return await self._store.commit(project.tenant, self._actor, plan)

    async def _check_free(self, tenant: str, name: str, but: str = "") -> None:
        """Check that no other project of the tenant uses a name."""
        for one in await self._list_projects(tenant):
            if one.name == name and one.id != but and not one.archived_seconds:
                raise BatonError(
                    Reason.ALREADY_EXISTS, f"tenant {tenant!r} already has a project {name!r}"
                )
