"""Records for tests: a tenant, its project, and their keys."""

from typing import Any

from baton.tenancy.directory.directory import Directory
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.tenants import (
    KIND_OF,
    Key,
    Project,
    Record,
    ServiceAccount,
    Tenant,
    Tier,
    encode,
)

PROJECT = "proj_0123456789abcdef"
KEY = "key_0123456789abcdef"
ACCOUNT = "svc_acct_0123456789abcdef"


def tenant(ident: str = "acme", **fields: Any) -> Tenant:
    return Tenant(id=ident, **{"tier": Tier.PRO, **fields})


def project(ident: str = PROJECT, owner: str = "acme", **fields: Any) -> Project:
    return Project(id=ident, tenant=owner, name="search", **fields)


def account(ident: str = ACCOUNT, owner: str = PROJECT, **fields: Any) -> ServiceAccount:
    return ServiceAccount(id=ident, project=owner, name="ranking", **fields)


def key(ident: str = KEY, **fields: Any) -> tuple[Key, bytes]:
    """Return a key and its secret."""
    secret = new_secret().encode()
    known = {"project": PROJECT, "sha256": digest_of(secret), "scopes": ("inference",)}
    return Key(id=ident, **{**known, **fields}), secret


def directory(*records: Record) -> Directory:
    """Return a directory of these records."""
    made = Directory()
    for record in records:
        made.put(f"{KIND_OF[type(record)]}/{record.id}", encode(record))
    return made
