"""The group of the database."""

from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from baton.settings.groups.base import SettingsGroup

_SCHEMES = ("postgresql", "postgres")


def _postgres_url(value: SecretStr) -> SecretStr:
    """Check a URL without revealing any of it: it may contain a password."""
    url = value.get_secret_value()
    if not url:
        return value
    try:
        split = urlsplit(url)
    except ValueError:
        raise ValueError("is not a URL: its host is invalid") from None
    if split.scheme not in _SCHEMES:
        raise ValueError("must start with postgresql://")
    ports = [_port(host) for host in split.netloc.rpartition("@")[2].split(",")]
    for several in parse_qs(split.query).get("port", ()):
        ports += several.split(",")
    if not all(port.isdecimal() and 0 < int(port) < 65536 for port in filter(None, ports)):
        raise ValueError("has a port that is not a number from 1 to 65535")
    if not split.path.strip("/") and "dbname=" not in split.query:
        raise ValueError("has no database: use postgresql://user@host/database")
    return value


def _port(host: str) -> str:
    """Return the port after a host, which may be an IPv6 address in brackets; empty: none."""
    return host.rpartition("]")[2].partition(":")[2]


PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres_url)]
"""`postgresql://user:password@host:port/database?option=value`, a secret; empty: none."""


class StateSettings(SettingsGroup):
    """The Postgres database, for data that is queried later. No request waits for it."""

    url: PostgresUrl = Field(
        SecretStr(""),
        description="postgresql://user:password@host/database?sslmode=verify-full, with libpq's "
        "options; none: features that need a database report that none is set",
    )
    connections: int = Field(4, ge=1, le=1000, description="maximum connections per process")
    max_waiting: int = Field(
        64,
        ge=0,
        le=100_000,
        description="maximum statements that wait for a connection; further ones are rejected",
    )
    connect_seconds: float = Field(5, gt=0, le=600, description="time to connect")
    statement_seconds: float = Field(
        10, gt=0, le=3600, description="time for a statement, including the wait for a connection"
    )
    prepared_statements: int = Field(
        100,
        ge=0,
        le=10_000,
        description="prepared statements kept per connection; 0 with PgBouncer in transaction "
        "pooling mode",
    )
