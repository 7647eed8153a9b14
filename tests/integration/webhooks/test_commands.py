"""`baton webhooks` shows endpoints and attempts, and deletes endpoints."""

import asyncio
import json

from tests.support.command_line import invoke
from tests.support.state.databases import Databases
from tests.support.webhooks.receiver import receiving
from tests.support.webhooks.stage import OURS, webhook_stage


async def test_operators_see_what_waits_and_what_came_of_it(databases: Databases) -> None:
    url = await databases.migrated()
    whose = ("--tenant", OURS.tenant, "--project", OURS.project, "--state-url", url)

    async def baton(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(invoke, ["webhooks", *words, *whose])
        return done.exit_code, done.output + str(done.exception or "")

    async with webhook_stage(url) as stage, receiving() as good:
        there, _ = await stage.endpoint(good.url, ["batch.completed"])
        away, _ = await stage.endpoint("http://127.0.0.1:1/")
        await stage.add("batch_1", "batch.completed")
        await stage.deliver()
        _, listed = await baton("ls", "--json")
        assert {one["id"]: one["waiting"] for one in json.loads(listed)} == {
            there.text: 0,
            away.text: 1,
        }
        _, shown = await baton("deliveries", "--json")
        found = {one["endpoint"]: one for one in json.loads(shown)}
        assert (found[there.text]["outcome"], found[there.text]["status"]) == ("delivered", 200)
        assert found[away.text]["outcome"] == "retrying"
        assert "cannot connect" in found[away.text]["detail"]
        event = found[away.text]["event"]
        _, table = await baton("deliveries", "--endpoint", away.text, "--event", event)
        assert len(table.splitlines()) == 2
        assert "cannot connect" in table
        code, said = await baton("deliveries", "--event", "evt_x")
        assert (code != 0, "event 'evt_x' does not exist" in said) == (True, True)
        assert await baton("rm", away.text) == (0, f"Deleted {away.text}.\n")
        assert await stage.due() == []
        code, said = await baton("rm", away.text)
        assert (code != 0, "does not exist" in said) == (True, True)
        _, table = await baton("ls")
        assert len(table.splitlines()) == 2
