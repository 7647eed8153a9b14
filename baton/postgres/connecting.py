"""Connecting to Postgres, and translation of its errors."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from baton.settings import StartupError, StateSettings

if TYPE_CHECKING:
    import asyncpg

_APPLICATION = "baton"
_CLOSE_SECONDS = 2.0
_UNAVAILABLE = ("08", "25006", "28", "3D", "53", "57", "58", "XX")
"""Prefixes of error codes that any statement would get: connections, a server that is now a
replica, passwords, no such database, resources, shutdown, disks."""


_NO_PARTITION = "no partition of relation"
"""Its code is that of a check constraint."""


class StateError(Exception):
    """A statement failed; the message gives the reason, and contains no secret."""


class DatabaseUnavailableError(StateError):
    """The database is currently unavailable."""


class SlowStatementError(DatabaseUnavailableError):
    """A statement took too long: it may be the only one, or the database does not respond."""


class RefusedError(StateError):
    """The database rejected values; a retry with the same ones fails again."""


class DuplicateError(RefusedError):
    """A row with this key is there."""


class MissingTableError(StateError):
    """A table does not exist."""


class NoPartitionError(RefusedError):
    """A row has no partition yet."""


def driver() -> Any:
    """Return the module asyncpg; it is imported only where a database is used.

    Raises:
        StartupError: it is not installed.
    """
    try:
        import asyncpg
    except ImportError as error:
        raise StartupError(
            "Postgres needs asyncpg, which is not installed: pip install 'baton-serving[state]'."
        ) from error
    return asyncpg


def options(settings: StateSettings) -> dict[str, Any]:
    """Return asyncpg's connection options."""
    return {
        "dsn": settings.url.get_secret_value(),
        "timeout": settings.connect_seconds,
        "command_timeout": settings.statement_seconds,
        "statement_cache_size": settings.prepared_statements,
        "max_cached_statement_lifetime": 0,
        "server_settings": {"application_name": _APPLICATION},
    }


@asynccontextmanager
async def connected(settings: StateSettings) -> "AsyncIterator[asyncpg.Connection]":
    """Connect temporarily, in addition to a process's `Database`.

    Raises:
        StartupError: asyncpg is not installed.
        RefusedError: Postgres rejected the values of a statement.
        DatabaseUnavailableError: the database does not respond, or rejects the connection.
        StateError: it rejected a statement.
    """
    asyncpg = driver()
    with errors_of(settings):
        connection = await asyncpg.connect(**options(settings))
        try:
            yield connection
        finally:
            await connection.close(timeout=_CLOSE_SECONDS)


@contextmanager
def errors_of(settings: StateSettings) -> Iterator[None]:
    """Translate asyncpg's exceptions to StateError.

    Raises:
        RefusedError: Postgres rejected the values of a statement.
        SlowStatementError: it did not respond in time.
        DatabaseUnavailableError: it could not be reached, or disconnected.
        StateError: it rejected the statement.
    """
    asyncpg = driver()
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        raise DuplicateError(_text(error, settings)) from None
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        text = _text(error, settings)
        raise NoPartitionError(text) if _NO_PARTITION in text else RefusedError(text) from None
    except TimeoutError:
        raise SlowStatementError(f"{place(settings)} did not respond in time") from None
    except OSError as error:
        reason = error.strerror or _text(error, settings)
        raise DatabaseUnavailableError(f"{place(settings)} is unreachable: {reason}") from None
    except asyncpg.UndefinedTableError as error:
        raise MissingTableError(f"{place(settings)}: {_text(error, settings)}") from None
    except asyncpg.PostgresError as error:
        gone = (error.sqlstate or "").startswith(_UNAVAILABLE)
        kind = DatabaseUnavailableError if gone else StateError
        raise kind(f"{place(settings)}: {_text(error, settings)}") from None
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if isinstance(error, ValueError) and not isinstance(
            error, asyncpg.ClientConfigurationError
        ):
            raise RefusedError(_text(error, settings)) from None  # not a value of that type
        raise DatabaseUnavailableError(f"{place(settings)}: {_text(error, settings)}") from None


def place(settings: StateSettings) -> str:
    """Return the address of the database, without the user: `host:port/name`."""
    split = urlsplit(settings.url.get_secret_value())
    query = dict(parse_qsl(split.query))
    host = split.netloc.rpartition("@")[2] or query.get("host", "")
    return f"{host}/{split.path.strip('/') or query.get('dbname', '')}"


def _text(error: BaseException, settings: StateSettings) -> str:
    """Return the first line of an error, with the URL's passwords removed."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    for secret in _passwords(settings.url.get_secret_value()):
        text = text.replace(secret, "…")
    return text


def _passwords(url: str) -> Iterator[str]:
    """Yield the passwords in a URL, in encoded and decoded form."""
    split = urlsplit(url)
    written = [split.netloc.rpartition("@")[0].partition(":")[2]]
    for part in split.query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) in ("password", "sslpassword"):
            written.append(value)
    for secret in filter(None, written):
        yield from (secret, unquote(secret), unquote_plus(secret))
