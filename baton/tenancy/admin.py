"""Changes of tenants, projects and keys, as the CLI makes them: written to etcd, one at a time."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from baton.cluster import keys
from baton.cluster.etcd import Etcd
from baton.cluster.tenants import CacheSalts
from baton.errors import BatonError, Reason, invalid_field
from baton.tenancy.records import (
    KINDS,
    Key,
    OldSecret,
    Project,
    Scope,
    Tenant,
    Tier,
    check,
    encode,
    parse,
)
from baton.tenancy.secret import digest_of, new_secret
from baton.tenancy.uses import KeyUse

R = TypeVar("R", bound=Tenant | Project | Key)

DEFAULT_PROJECT = "default"
"""The project that a tenant is made with."""
_ID_BYTES = 8
_ATTEMPTS = 5
"""Of a change that others come before."""
_KIND_OF: dict[type, str] = {kind: name for name, kind in KINDS.items()}


class Administration:
    """Makes and changes records. Every change is one write to etcd, which frontends and stores see
    within a moment; two that meet are made one after the other.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.

    Methods raise:
        BatonError: INVALID_FIELD, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION.
        EtcdError: etcd is away.
    """

    def __init__(self, etcd: Etcd, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._prefix = keys.tenancy(cluster)
        self._uses = keys.key_uses(cluster)
        self._salts = CacheSalts(etcd, cluster)
        self._clock = clock

    # Tenants

    async def create_tenant(
        self, ident: str, tier: Tier, kv_bytes: int = 0, **limits: int
    ) -> Tenant:
        """Make a tenant, with a KV salt and the project `default`; `limits` by their fields."""
        now = self._now()
        tenant = Tenant(id=ident, tier=tier, kv_bytes=kv_bytes, created_seconds=now, **limits)
        _checked(tenant)
        await self._salts.get(ident)  # frontends need it also while etcd is away
        if not await self._create(tenant):
            raise BatonError(Reason.ALREADY_EXISTS, f"there is a tenant {ident!r} already")
        await self.create_project(ident, DEFAULT_PROJECT)
        return tenant

    async def update_tenant(self, ident: str, **changes: Any) -> Tenant:
        """Change fields of a tenant, limits among them; `disabled` sets since when it is."""
        disabled = changes.pop("disabled", None)
        if disabled is not None:
            changes["disabled_seconds"] = self._now() if disabled else 0
        return await self._change(Tenant, ident, lambda _: changes)

    async def tenants(self) -> list[Tenant]:
        """Return all tenants, by id."""
        return [record async for record in self._all(Tenant)]

    # Projects

    async def create_project(self, tenant: str, name: str, **limits: int) -> Project:
        """Make a project of a tenant; `limits` by their fields."""
        await self._get(Tenant, tenant)
        if any(
            one.name == name and not one.archived_seconds for one in await self.projects(tenant)
        ):
            raise BatonError(
                Reason.ALREADY_EXISTS, f"the tenant {tenant!r} has a project {name!r} already"
            )
        project = Project(
            id=f"proj_{secrets.token_hex(_ID_BYTES)}",
            tenant=tenant,
            name=name,
            created_seconds=self._now(),
            **limits,
        )
        _checked(project)
        await self._create(project)
        return project

    async def update_project(self, tenant: str, name: str, **limits: int) -> Project:
        """Change limits of a project, named by name or id; 0 takes one away."""
        found = await self.find_project(tenant, name)
        return await self._change(Project, found.id, lambda _: limits)

    async def archive_project(self, tenant: str, name: str) -> Project:
        """Refuse the keys of a project, named by name or id, for good."""
        found = await self.find_project(tenant, name)
        return await self._change(Project, found.id, lambda _: {"archived_seconds": self._now()})

    async def projects(self, tenant: str = "") -> list[Project]:
        """Return the projects of a tenant, or all."""
        return [one async for one in self._all(Project) if tenant in ("", one.tenant)]

    async def find_project(self, tenant: str, name: str) -> Project:
        """Return the project of a tenant with a name or id; archived ones by id only."""
        for one in await self.projects(tenant):
            if one.id == name or (one.name == name and not one.archived_seconds):
                return one
        raise _not_found(
            f"the tenant {tenant!r} has no project {name!r}; `baton projects ls` lists all"
        )

    # Keys

    async def create_key(
        self,
        project: Project,
        scopes: Sequence[str] = (Scope.INFERENCE,),
        *,
        name: str = "",
        models: Sequence[str] = (),
        expires_in_seconds: int = 0,
        **limits: int,
    ) -> tuple[Key, str]:
        """Make a key; `limits` by their fields. Return it and its secret, which is kept nowhere."""
        secret, now = new_secret(), self._now()
        known = tuple(Scope)
        for scope in scopes:
            if scope not in known:
                raise invalid_field("scopes", f"{scope!r} is none; there are {', '.join(known)}")
        if expires_in_seconds < 0:
            raise invalid_field("expires_in_seconds", f"{expires_in_seconds}, less than 0")
        key = Key(
            id=f"key_{secrets.token_hex(_ID_BYTES)}",
            project=project.id,
            name=name,
            sha256=digest_of(secret.encode()),
            old_secret=None,
            scopes=tuple(dict.fromkeys(str(scope) for scope in scopes)),
            models=tuple(dict.fromkeys(models)),
            created_seconds=now,
            expires_seconds=now + expires_in_seconds if expires_in_seconds else 0,
            **limits,
        )
        _checked(key)
        await self._create(key)
        return key, secret

    async def update_key(self, ident: str, **limits: int) -> Key:
        """Change limits of a key; 0 takes one away."""
        return await self._change(Key, ident, lambda _: limits)

    async def rotate_key(self, ident: str, keep_seconds: int) -> tuple[Key, str]:
        """Give a key a new secret, and take the one before for `keep_seconds` more."""
        secret = new_secret()

        def rotated(key: Key) -> dict[str, Any]:
            now, old = self._now(), key.old_secret
            if key.revoked_seconds:
                raise BatonError(Reason.FAILED_PRECONDITION, f"the key {ident} is revoked")
            if old is not None and now < old.until_seconds and keep_seconds:
                raise BatonError(
                    Reason.FAILED_PRECONDITION,
                    f"two secrets of the key {ident} are taken for {old.until_seconds - now} s "
                    "more: rotate it after that, or keep none of them",
                )
            kept = OldSecret(key.sha256, now + keep_seconds) if keep_seconds else None
            return {"sha256": digest_of(secret.encode()), "old_secret": kept}

        if keep_seconds < 0:
            raise invalid_field("keep_seconds", f"{keep_seconds}, less than 0")
        return await self._change(Key, ident, rotated), secret

    async def revoke_key(self, ident: str) -> Key:
        """Take a key no more, for good."""

        def revoked(key: Key) -> dict[str, Any]:
            return {"revoked_seconds": key.revoked_seconds or self._now()}

        return await self._change(Key, ident, revoked)

    async def keys(self) -> list[Key]:
        """Return all keys, by id."""
        return [record async for record in self._all(Key)]

    async def last_uses(self) -> dict[str, int]:
        """Return when keys were used last, by id: whole minutes in seconds since the Unix epoch."""
        found: dict[str, int] = {}
        async with aclosing(self._etcd.pages(self._uses)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    use = msgspec.json.decode(value, type=KeyUse)
                    found[key.removeprefix(self._uses)] = use.last_used_seconds
        return found

    # How they are written.

    def _now(self) -> int:
        return int(self._clock())

    async def _create(self, record: Tenant | Project | Key) -> bool:
        return await self._etcd.create(self._key(type(record), record.id), encode(record))

    async def _get(self, kind: type[R], ident: str) -> tuple[R, bytes]:
        stored = await self._etcd.get(self._key(kind, ident)) if ident else None
        if stored is None:
            name = _KIND_OF[kind]
            raise _not_found(f"there is no {name[:-1]} {ident!r}; `baton {name} ls` lists all")
        return parse(kind, ident, stored), stored

    async def _change(self, kind: type[R], ident: str, change: Callable[[R], dict[str, Any]]) -> R:
        """Change fields of a record; those that this release does not know stay as they are."""
        for _ in range(_ATTEMPTS):
            record, stored = await self._get(kind, ident)
            changes = change(record) | {"version": record.version + 1}
            fields: dict[str, Any] = msgspec.json.decode(stored)
            fields |= {name: msgspec.to_builtins(value) for name, value in changes.items()}
            value = msgspec.json.encode({k: v for k, v in fields.items() if v not in (0, None)})
            try:
                changed = parse(kind, ident, value)
            except ValueError as error:
                raise _invalid(error) from None
            if await self._etcd.replace(self._key(kind, ident), stored, value):
                return changed
        raise BatonError(Reason.ABORTED, f"{ident} is being changed by others; try again")

    async def _all(self, kind: type[R]) -> AsyncIterator[R]:
        prefix = self._key(kind, "")
        async with aclosing(self._etcd.pages(prefix)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    yield parse(kind, key.removeprefix(prefix), value)

    def _key(self, kind: type, ident: str) -> str:
        return f"{self._prefix}{_KIND_OF[kind]}/{ident}"


def _checked(record: Tenant | Project | Key) -> None:
    try:
        check(record)
    except ValueError as error:
        raise _invalid(error) from None


def _invalid(error: ValueError) -> BatonError:
    field, _, what = str(error).partition(": ")
    return invalid_field(field, what)


def _not_found(what: str) -> BatonError:
    return BatonError(Reason.NOT_FOUND, what)
