"""The directory: every tenant, project and key in memory, and the one look-up of a request."""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar, cast

from msgspec.structs import replace

from baton.errors import BatonError, Reason
from baton.tenancy.principal import Principal
from baton.tenancy.records import KINDS, Key, Project, Record, Tenant, parse

H = TypeVar("H", bound=Hashable)

NO_KEY = "no API key: send one as 'authorization: Bearer sk-baton-…'"
UNKNOWN = "the API key is not valid"
"""Of one that is unknown and one that is wrong: nothing tells them apart."""
EXPIRED = "the API key has expired"
ROTATED = "this secret of the API key was replaced, and is no longer taken"
REVOKED = "the API key was revoked"
ARCHIVED = "the project of the API key was archived"
DISABLED = "the tenant of the API key is disabled"


def refused(sentence: str) -> BatonError:
    """Return the error of a request whose key is not taken."""
    return BatonError(Reason.INVALID_API_KEY, sentence)


class Directory:
    """Records by name, and keys by digest. Pure: no I/O and no clock. Owned by one loop.

    Bounded by the records that there are. About 400 bytes per key.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._projects: dict[str, Project] = {}
        self._keys: dict[str, Key] = {}
        self._by_digest: dict[bytes, Key] = {}
        self._shared: dict[Hashable, Hashable] = {}
        """One object for each of the few values that most keys have."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Tenants by id; a live view."""
        return self._tenants

    def authenticate(self, digest: bytes, now: float) -> Principal:
        """Return whose key it is.

        Args:
            digest: of the secret that was sent.
            now: seconds since the Unix epoch.

        Raises:
            BatonError: INVALID_API_KEY, with one of the sentences of this module.
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
        project = self._projects.get(key.project)
        if project is None or project.archived_seconds:
            raise refused(ARCHIVED)
        tenant = self._tenants.get(project.tenant)
        if tenant is None or tenant.disabled_seconds:
            raise refused(DISABLED)
        return Principal(tenant, project, key)

    def get(self, name: str) -> Record | None:
        """Return the record of a name, `keys/key_0123456789abcdef`; None: there is none."""
        kind, ident = _split(name)
        return self._table(kind).get(ident)

    def names(self) -> Iterator[str]:
        """Yield the names of all records: tenants, then projects, then keys."""
        for kind, table in self._tables().items():
            for ident in table:
                yield f"{kind}/{ident}"

    def put(self, name: str, value: bytes) -> None:
        """Take in a record as it is stored.

        Raises:
            ValueError: it is none; what was known under the name stays in force.
        """
        kind, ident = _split(name)
        record = parse(KINDS[kind], ident, value)
        if isinstance(record, Key):
            self._put_key(record)
        else:
            self._table(kind)[record.id] = record

    def remove(self, name: str) -> None:
        """Forget a record. Nothing happens if there is none.

        Raises:
            ValueError: the name is no record's.
        """
        kind, ident = _split(name)
        gone = self._table(kind).pop(ident, None)
        if isinstance(gone, Key):
            self._forget_digests(gone)

    def _put_key(self, key: Key) -> None:
        before = self._keys.get(key.id)
        if before is not None:
            self._forget_digests(before)
        key = replace(
            key,
            project=self._one(key.project),
            scopes=self._one(key.scopes),
            models=self._one(key.models),
        )
        self._keys[key.id] = self._by_digest[key.sha256] = key
        if key.old_secret is not None:
            self._by_digest[key.old_secret.sha256] = key

    def _forget_digests(self, key: Key) -> None:
        digests = [key.sha256] if key.old_secret is None else [key.sha256, key.old_secret.sha256]
        for digest in digests:
            if self._by_digest.get(digest) is key:
                del self._by_digest[digest]

    def _one(self, value: H) -> H:
        return cast(H, self._shared.setdefault(value, value))

    def _tables(self) -> dict[str, dict[str, Record]]:
        tables = {"tenants": self._tenants, "projects": self._projects, "keys": self._keys}
        return cast("dict[str, dict[str, Record]]", tables)

    def _table(self, kind: str) -> dict[str, Record]:
        return self._tables()[kind]


def _split(name: str) -> tuple[str, str]:
    kind, _, ident = name.partition("/")
    if kind not in KINDS or not ident:
        raise ValueError(f"{name[:200]!r} names no record of tenancy")
    return kind, ident
