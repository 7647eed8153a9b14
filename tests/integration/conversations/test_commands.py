"""`baton conversations` shows and deletes what is in the database."""

import asyncio
import json

from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from tests.integration.conversations.test_managed import made
from tests.integration.conversations.test_store import OURS, database, store
from tests.support.command_line import invoke

__all__ = ["database", "store"]  # fixtures


async def test_operators_list_show_and_delete(store: ConversationStore, database: Database) -> None:
    await made(store, '{"n":0}')
    found = await made(store, '{"n":1}', '{"n":2}', later=1)
    url = database._settings.url.get_secret_value()
    whose = ("--tenant", OURS.tenant, "--project", OURS.project, "--state-url", url)

    async def baton(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(invoke, ["conversations", *words, *whose])
        return done.exit_code, done.output + str(done.exception or "")

    _, listed = await baton("ls", "--limit", "1", "--json")
    (one,) = json.loads(listed)
    assert (one["id"], one["items"], one["bytes"]) == (found.text, 2, 14)
    _, shown = await baton("show", found.text)
    assert [json.loads(line) for line in shown.splitlines()][1:] == [{"n": 1}, {"n": 2}]
    assert (await baton("rm", found.text)) == (0, f"Deleted {found.text}.\n")
    code, said = await baton("show", found.text)
    assert code != 0
    assert "does not exist" in said
    _, table = await baton("ls")
    assert len(table.splitlines()) == 2
