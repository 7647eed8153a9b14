"""What is said of a database: where it is, and what failed, and never its password."""

from urllib.parse import quote

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from baton.postgres.connecting import (
    DatabaseUnavailableError,
    RefusedError,
    SlowStatementError,
    StateError,
    errors_of,
    place,
)
from baton.settings import FrontendSettings, StateSettings, describe, load_with_sources

PASSWORDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=6, max_size=30)


def state(url: str) -> StateSettings:
    return StateSettings(url=SecretStr(url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:5433/d?sslmode=verify-full", "h:5433/d"),
        ("postgres://h/d", "h/d"),
        ("postgresql://u@h1:1,h2:2/d?target_session_attrs=read-write", "h1:1,h2:2/d"),
        ("postgresql://u:a@b@[::1]:5432/d", "[::1]:5432/d"),
        ("postgresql://u@/d?host=/run/postgres", "/run/postgres/d"),
        ("postgresql://?host=h&dbname=d&password=p", "h/d"),
    ],
)
def test_where_it_is(url: str, expected: str) -> None:
    assert place(state(url)) == expected


@given(PASSWORDS, st.booleans(), st.sampled_from([OSError, asyncpg.InvalidPasswordError]))
def test_no_error_has_the_password(password: str, query: bool, kind: type[Exception]) -> None:
    written = quote(password, safe="")
    url = f"postgresql://h/d?password={written}" if query else f"postgresql://u:{written}@h/d"
    with pytest.raises(DatabaseUnavailableError) as caught, errors_of(state(url)):
        raise kind(f"no {url} for you, {password}")
    assert password not in str(caught.value)
    assert written not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), SlowStatementError),
        (ConnectionRefusedError(111, "Connection refused"), DatabaseUnavailableError),
        (asyncpg.CannotConnectNowError("starting up"), DatabaseUnavailableError),
        (asyncpg.ReadOnlySQLTransactionError("a read-only replica"), DatabaseUnavailableError),
        (asyncpg.TooManyConnectionsError("100"), DatabaseUnavailableError),
        (asyncpg.ConnectionDoesNotExistError("gone"), DatabaseUnavailableError),
        (asyncpg.InterfaceError("connection is closed"), DatabaseUnavailableError),
        (asyncpg.ClientConfigurationError("sslmode"), DatabaseUnavailableError),
        (asyncpg.NumericValueOutOfRangeError("10^30"), RefusedError),
        (asyncpg.NotNullViolationError("tenant"), RefusedError),
        (asyncpg.InsufficientPrivilegeError("usage_records"), StateError),
        (asyncpg.DeadlockDetectedError("two"), StateError),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, Exception) else "",
)
def test_errors_say_whether_another_statement_would_fail_too(
    error: Exception, expected: type[StateError]
) -> None:
    with pytest.raises(StateError) as caught, errors_of(state("postgresql://h/d")):
        raise error
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@h/d",
        "u:hunter2@h/d",
        "postgresql://u:hunter2@h",
        "http://[hunter2",
        "postgresql://u:hunter2@h:port/d",
        "postgresql://u:hunter2@h1:1,[::1]:65536/d",
        "postgresql://u:hunter2@h/d?port=0",
    ],
)
def test_a_wrong_url_is_not_shown(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        state(url)
    assert "hunter2" not in str(caught.value)


def test_settings_hide_it() -> None:
    variables = {"BATON_STATE_URL": "postgresql://u:hunter2@h/d"}
    loaded = load_with_sources(FrontendSettings, (), "frontend", variables)
    (shown,) = [row.value for row in describe(loaded) if row.name.dotted == "state.url"]
    assert shown == "********"
    assert "hunter2" not in repr(loaded.settings)
