"""The schema's upgrade, in a real Postgres."""

import asyncio

import msgspec
import pytest

from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.postgres.connecting import StateError, connected
from baton.postgres.revisions import BASE, newest, revisions
from baton.postgres.schema import current, upgrade
from baton.usage.record import UsageRecord
from tests.support.command_line import invoke
from tests.support.state.databases import Databases, state_settings


async def test_many_upgrades_at_once_do_it_once(databases: Databases) -> None:
    settings = state_settings(await databases.empty())
    assert await current(settings) == BASE
    done = await asyncio.gather(*(upgrade(settings) for _ in range(4)))
    assert sorted(done) == sorted([(newest(), newest())] * 3 + [(BASE, newest())])
    assert await current(settings) == newest() == revisions()[-1]


async def test_every_field_of_a_record_has_a_column(databases: Databases) -> None:
    settings = state_settings(await databases.migrated())
    async with connected(settings) as connection:
        rows = await connection.fetch(
            "select column_name, is_nullable from information_schema.columns "
            "where table_name = 'usage_records'"
        )
    nullable = {row["column_name"]: row["is_nullable"] == "YES" for row in rows}
    renamed = {"began_ms": "began", "ended_ms": "ended"}
    fields = {renamed.get(f.name, f.name): f for f in msgspec.structs.fields(UsageRecord)}
    assert nullable.keys() == fields.keys()
    assert {name for name, null in nullable.items() if null} == {
        name for name, field in fields.items() if field.default is None
    }


async def test_a_failed_upgrade_leaves_nothing(databases: Databases) -> None:
    settings = state_settings(await databases.empty())
    async with connected(settings) as connection:
        await connection.execute("create table usage_records (mine int)")
    with pytest.raises(StateError, match="use a separate database"):
        await upgrade(settings)
    assert await current(settings) == BASE


async def test_a_newer_schema_is_not_touched(databases: Databases) -> None:
    settings = state_settings(await databases.migrated())
    async with connected(settings) as connection:
        await connection.execute("update baton_schema set version_num = '9999'")
        assert await upgrade(settings) == ("9999", "9999")  # it only adds
        await connection.execute("update baton_schema_oldest set revision = '9999'")
    with pytest.raises(StateError, match="9999 is unknown to this release"):
        await upgrade(settings)
    assert await current(settings) == "9999"


async def test_the_commands_say_what_they_did(databases: Databases) -> None:
    url = await databases.empty()

    async def run(*arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(invoke, ["db", *arguments])
        if isinstance(result.exception, CommandError):
            return result.exception.code, str(result.exception)
        return result.exit_code, result.output

    code, said = await run("status", "--state-url", url)
    assert (code, "no Baton schema yet: run `baton db upgrade`" in said) == (EXIT_FAILED, True)
    code, said = await run("upgrade", "--state-url", url)
    assert (code, f"from base to {newest()}." in said) == (0, True)
    code, said = await run("upgrade", "--state-url", url)
    assert (code, f"already has schema {newest()}." in said) == (0, True)
    code, said = await run("status", "--state-url", url)
    assert (code, "which this release needs" in said) == (0, True)
    code, said = await run("upgrade", "--state-url", f"{url}&sslmode=nonsense")
    assert (code, "sslmode" in said) == (EXIT_FAILED, True)
    code, said = await run("status", "--state-url", "postgresql://a:hunter2@127.0.0.1:1/x")
    assert code == EXIT_FAILED
    assert said.startswith("127.0.0.1:1/x is unreachable") and "hunter2" not in said
    away = ("--state-url", "postgresql://a:hunter2@127.0.0.1:1/x")
    code, said = await run("upgrade", *away)
    assert code == EXIT_FAILED
    code, said = await run("upgrade", "--optional", *away)
    assert (code, said.startswith("Not upgraded: 127.0.0.1:1/x is unreachable")) == (0, True)
    code, said = await run("upgrade", "--optional", "--state-url", "mysql://b/c")
    assert code == 2
    code, said = await run("upgrade", "--state-url", "mysql://a:hunter2@b/c")
    assert said == "--state-url must start with postgresql://." and code == 2
    code, said = await run("upgrade")
    assert code == 2 and said.startswith("No database is configured")
