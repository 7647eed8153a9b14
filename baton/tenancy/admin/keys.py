"""Changes to API keys, made from the command line and by frontends."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.errors import BatonError, Reason, invalid_field
from baton.tenancy.directory.uses import KeyUse
from baton.tenancy.records.audit import OPERATOR, Actor
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.store import RecordChange, RecordStore, not_found
from baton.tenancy.records.tenants import Key, OldSecret, Project, Scope, ServiceAccount


class KeyAdministration:
    """Creates, changes and revokes keys, and reads their last uses: part of `Administration`."""

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        clock: Callable[[], float] = time.time,
        *,
        store: RecordStore | None = None,
        actor: Actor = OPERATOR,
    ) -> None:
        self._etcd = etcd
        self._uses = keys.key_uses(cluster)
        self._store = store or RecordStore(etcd, cluster, clock)
        self._actor = actor

    async def create_key(
        self,
        project: Project,
        scopes: Sequence[str] = (Scope.INFERENCE,),
        *,
        name: str = "",
        models: Sequence[str] = (),
        expires_in_seconds: int = 0,
        service_account: str = "",
        **limits: int,
    ) -> tuple[Key, str]:
        """Create a key; `limits` by field name. Return it and its secret, which is not stored.

        If `service_account` is the ID of an account, the key is revoked with it.
        """
        secret = new_secret()
        _check_scopes(scopes)
        if expires_in_seconds < 0:
            raise invalid_field(
                "expires_in_seconds", f"{expires_in_seconds} is out of range: at least 0"
            )

        async def plan() -> RecordChange[Key]:
            current, _ = await self._store.get(Project, project.id)
            check_active(current)
            if service_account:
                account, _ = await self._store.get(ServiceAccount, service_account)
                if account.deleted_seconds:
                    raise not_found(f"service account {service_account!r} was deleted")
            now = self._store.now()
            key = Key(
                id=self._store.new_id("key"),
                project=project.id,
                service_account=service_account,
                name=name,
                sha256=digest_of(secret.encode()),
                old_secret=None,
                scopes=tuple(dict.fromkeys(str(scope) for scope in scopes)),
                models=tuple(dict.fromkeys(models)),
                created_seconds=now,
                expires_seconds=now + expires_in_seconds if expires_in_seconds else 0,
                **limits,
            )
            return RecordChange("api_key.created", key, project=current)

        return await self._store.commit(project.tenant, self._actor, plan), secret

    async def update_key(self, ident: str, **limits: int) -> Key:
        """Change limits of a key; 0 removes one."""
        return await self._change_key(ident, "api_key.updated", lambda _: {**limits})

    async def change_key(self, ident: str, scopes: Sequence[str], expires_in_seconds: int) -> Key:
        """Change the scopes and the expiry of a key.

        Args:
            ident: ID of the key.
            scopes: the new ones; none: unchanged.
            expires_in_seconds: from now; 0: unchanged.
        """
        _check_scopes(scopes)

        def changed(key: Key) -> dict[str, Any]:
            now = self._store.now()
            if key.revoked_seconds:
                raise BatonError(Reason.FAILED_PRECONDITION, f"key {ident} is revoked")
            if key.expires_seconds and now >= key.expires_seconds:
                raise BatonError(Reason.FAILED_PRECONDITION, f"key {ident} has expired")
            changes: dict[str, Any] = {}
            if scopes:
                changes["scopes"] = list(dict.fromkeys(scopes))
            if expires_in_seconds:
                changes["expires_seconds"] = now + expires_in_seconds
            return changes

        return await self._change_key(ident, "api_key.updated", changed)

    async def rotate_key(self, ident: str, keep_seconds: int) -> tuple[Key, str]:
        """Replace the secret of a key; the old one stays valid for `keep_seconds`."""
        secret = new_secret()

        def rotated(key: Key) -> dict[str, Any]:
            now, old = self._store.now(), key.old_secret
            if key.revoked_seconds:
                raise BatonError(Reason.FAILED_PRECONDITION, f"key {ident} is revoked")
            if old is not None and now < old.until_seconds and keep_seconds:
                raise BatonError(
                    Reason.FAILED_PRECONDITION,
                    f"key {ident} has two valid secrets for {old.until_seconds - now} s more: "
                    "rotate it "
                    "after that, or do not keep the old secret",
                )
            kept = OldSecret(key.sha256, now + keep_seconds) if keep_seconds else None
            return {"sha256": digest_of(secret.encode()), "old_secret": kept}

        if keep_seconds < 0:
            raise invalid_field("keep_seconds", f"{keep_seconds} is out of range: at least 0")
        return await self._change_key(ident, "api_key.updated", rotated), secret

    async def revoke_key(self, ident: str) -> Key:
        """Revoke a key permanently."""

        def revoked(key: Key) -> dict[str, Any]:
            return {"revoked_seconds": key.revoked_seconds or self._store.now()}

        return await self._change_key(ident, "api_key.deleted", revoked)

    async def keys(self) -> list[Key]:
        """Return all keys, sorted by ID."""
        return [record async for record in self._store.all(Key)]

    async def last_uses(self) -> dict[str, int]:
        """Return when keys were last used, by ID: whole minutes in seconds since the Unix epoch."""
        found: dict[str, int] = {}
        async with aclosing(self._etcd.pages(self._uses)) as pages:
            async for pairs, _ in pages:
                found |= self._read_uses(pairs)
        return found

    async def last_uses_of(self, idents: Sequence[str]) -> dict[str, int]:
        """Return the last uses of up to `etcd.MAX_BATCH` keys; keys never used are omitted."""
        if not idents:
            return {}
        found = await self._etcd.get_all([self._uses + ident for ident in idents])
        return self._read_uses(found.items())

    def _read_uses(self, pairs: Iterable[tuple[str, bytes]]) -> dict[str, int]:
        decoded = ((key, msgspec.json.decode(value, type=KeyUse)) for key, value in pairs)
        return {key.removeprefix(self._uses): use.last_used_seconds for key, use in decoded}

    async def _change_key(
        self, ident: str, event: str, change: Callable[[Key], dict[str, Any]]
    ) -> Key:
        key, _ = await self._store.get(Key, ident)
        project, _ = await self._store.get(Project, key.project)
        return await self._store.update(
            project.tenant, self._actor, Key, ident, event, change, project
        )


def check_active(project: Project) -> None:
    """Check that a project may be changed.

    Raises:
        BatonError: FAILED_PRECONDITION, it is archived.
    """
    if project.archived_seconds:
        raise BatonError(
            Reason.FAILED_PRECONDITION, f"project {project.id} is archived, permanently"
        )


def _check_scopes(scopes: Sequence[str]) -> None:
    known = tuple(Scope)
    for scope in scopes:
        if scope not in known:
            raise invalid_field("scopes", f"{scope[:64]!r} is not a scope: use {', '.join(known)}")
