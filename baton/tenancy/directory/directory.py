"""The directory: all tenants, projects and keys in memory, and the lookup that authenticates
requests."""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar, cast

from msgspec.structs import replace

from baton.errors import BatonError, Reason
from baton.tenancy.directory.listing import Listing
from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.spec import AMOUNTS, BUDGET
from baton.tenancy.records.adapters import AdapterRecord
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.auto import AutoRules
from baton.tenancy.records.classes import ClassPolicy
from baton.tenancy.records.policies import ModelPolicy
from baton.tenancy.records.providers import Provider
from baton.tenancy.records.tenants import (
    KINDS,
    Key,
    Project,
    Record,
    Scope,
    ServiceAccount,
    Tenant,
    parse,
)

H = TypeVar("H", bound=Hashable)

_MAX_SHARED = 4096

NO_KEY = "the API key is missing: send 'authorization: Bearer sk-baton-…'"
UNKNOWN = "the API key is not valid"
"""Message for both unknown and wrong keys, so that they are indistinguishable."""
EXPIRED = "the API key has expired"
ROTATED = "this secret of the API key was replaced and is no longer valid"
REVOKED = "the API key was revoked"
DELETED = "the service account of the API key was deleted"
ARCHIVED = "the project of the API key was archived"
DISABLED = "the tenant of the API key is disabled"


def refused(sentence: str) -> BatonError:
    """Return the error for a request whose key is rejected."""
    return BatonError(Reason.INVALID_API_KEY, sentence)


class Directory:
    """Records by name, and keys by digest. Pure: no I/O and no clock. Owned by one loop.

    Bounded by the number of records. About 500 bytes per key.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._projects: dict[str, Project] = {}
        self._accounts: dict[str, ServiceAccount] = {}
        self._keys: dict[str, Key] = {}
        self._classes: dict[str, ClassPolicy] = {}
        """Used by routers; kept here so that they are written again if etcd has lost its data."""
        self._aliases: dict[str, ModelAlias] = {}
        """Used by `services.frontend.models.aliases`; kept here for the same reason."""
        self._providers: dict[str, Provider] = {}
        """Used by `services.frontend.models.providers`; kept here for the same reason."""
        self._adapters: dict[str, AdapterRecord] = {}
        """Used by `services.frontend.models.adapters`; kept here for the same reason."""
        self._auto: dict[str, AutoRules] = {}
        """Used by `services.frontend.models.auto`; kept here for the same reason."""
        self._policies: dict[str, ModelPolicy] = {}
        """Used by `services.frontend.models.policies`; kept here for the same reason."""
        self._by_digest: dict[bytes, Key] = {}
        self._shared: dict[Hashable, Hashable] = {}
        """Shared objects for values that most keys have in common, including limits."""
        self.projects_of = Listing()
        """IDs of projects, including archived ones, by tenant."""
        self.accounts_of = Listing()
        """IDs of service accounts that are not deleted, by project."""
        self.keys_of = Listing()
        """IDs of keys that are not revoked, by project, except administration keys."""
        self.admin_keys_of = Listing()
        """IDs of administration keys that are not revoked."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def projects(self) -> Mapping[str, Project]:
        """Projects by ID; a live view."""
        return self._projects

    @property
    def accounts(self) -> Mapping[str, ServiceAccount]:
        """Service accounts by ID, including deleted ones; a live view."""
        return self._accounts

    @property
    def keys(self) -> Mapping[str, Key]:
        """Keys by ID, including revoked ones; a live view."""
        return self._keys

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Tenants by ID; a live view."""
        return self._tenants

    def authenticate(self, digest: bytes, now: float) -> Principal:
        """Return the principal of a key.

        Args:
            digest: digest of the secret that was sent.
            now: seconds since the Unix epoch.

        Raises:
            BatonError: INVALID_API_KEY, with one of the messages of this module.
        """
        key = self._by_digest.get(digest)
        if key is None:
            raise refused(UNKNOWN)
        if key.revoked_seconds:
            raise refused(REVOKED)
        if key.expires_seconds and now >= key.expires_seconds:
            raise refused(EXPIRED)
        old = key.old_secret
        if old is not None and digest == old.sha256 and now >= old.until_seconds:
            raise refused(ROTATED)
        if key.service_account:
            account = self._accounts.get(key.service_account)
            if account is None or account.deleted_seconds:
                raise refused(DELETED)
        project = self._projects.get(key.project)
        if project is None or project.archived_seconds:
            raise refused(ARCHIVED)
        tenant = self._tenants.get(project.tenant)
        if tenant is None or tenant.disabled_seconds:
            raise refused(DISABLED)
        return Principal(tenant, project, key)

    def get(self, name: str) -> Record | None:
        """Return the record with a name, `keys/key_0123456789abcdef`; None: it does not exist."""
        kind, ident = _split(name)
        return self._table(kind).get(ident)

    def names(self) -> Iterator[str]:
        """Yield the names of all records, keys last."""
        for kind, table in self._tables().items():
            for ident in table:
                yield f"{kind}/{ident}"

    def put(self, name: str, value: bytes) -> None:
        """Add or replace a record, as stored.

        Raises:
            ValueError: it is invalid; the previous record of that name stays in force.
        """
        kind, ident = _split(name)
        record = parse(KINDS[kind], ident, value)
        match record:
            case Key():
                self._put_key(record)
            case Project():
                self._forget(kind, ident)
                self._projects[ident] = record
                self.projects_of.add(record.tenant, ident)
            case ServiceAccount():
                self._forget(kind, ident)
                self._accounts[ident] = record
                if not record.deleted_seconds:
                    self.accounts_of.add(record.project, ident)
            case Tenant():
                self._tenants[ident] = record
            case ClassPolicy():
                self._classes[ident] = record
            case ModelAlias():
                self._aliases[ident] = record
            case Provider():
                self._providers[ident] = record
            case AutoRules():
                self._auto[ident] = record
            case AdapterRecord():
                self._adapters[ident] = record
            case ModelPolicy():
                self._policies[ident] = record

    def remove(self, name: str) -> None:
        """Remove a record. Do nothing if it does not exist.

        Raises:
            ValueError: the name is not that of a record.
        """
        self._forget(*_split(name))

    def _forget(self, kind: str, ident: str) -> None:
        match self._table(kind).pop(ident, None):
            case Key() as gone:
                self._forget_digests(gone)
                self._listing(gone).remove(gone.project, ident)
            case Project() as gone:
                self.projects_of.remove(gone.tenant, ident)
            case ServiceAccount() as gone:
                self.accounts_of.remove(gone.project, ident)

    def _put_key(self, key: Key) -> None:
        self._forget("keys", key.id)
        key = replace(
            key,
            project=self._one(key.project),
            service_account=self._one(key.service_account),
            scopes=self._one(key.scopes),
            models=self._one(key.models),
            **{field: self._one(getattr(key, field)) for field in (*AMOUNTS, BUDGET)},
        )
        self._keys[key.id] = self._by_digest[key.sha256] = key
        if key.old_secret is not None:
            self._by_digest[key.old_secret.sha256] = key
        if not key.revoked_seconds:
            self._listing(key).add(key.project, key.id)

    def _listing(self, key: Key) -> Listing:
        return self.admin_keys_of if Scope.ADMIN in key.scopes else self.keys_of

    def _forget_digests(self, key: Key) -> None:
        digests = [key.sha256] if key.old_secret is None else [key.sha256, key.old_secret.sha256]
        for digest in digests:
            if self._by_digest.get(digest) is key:
                del self._by_digest[digest]

    def _one(self, value: H) -> H:
        if len(self._shared) >= _MAX_SHARED:  # with values that were replaced, or that vary
            self._shared.clear()
        return cast(H, self._shared.setdefault(value, value))

    def _tables(self) -> dict[str, dict[str, Record]]:
        tables = {
            "adapters": self._adapters,
            "aliases": self._aliases,
            "auto": self._auto,
            "classes": self._classes,
            "policies": self._policies,
            "providers": self._providers,
            "tenants": self._tenants,
            "projects": self._projects,
            "accounts": self._accounts,
            "keys": self._keys,
        }
        return cast("dict[str, dict[str, Record]]", tables)

    def _table(self, kind: str) -> dict[str, Record]:
        return self._tables()[kind]


def _split(name: str) -> tuple[str, str]:
    kind, _, ident = name.partition("/")
    if kind not in KINDS or not ident:
        raise ValueError(f"{name[:200]!r} names no record of tenancy")
    return kind, ident
