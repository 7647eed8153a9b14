"""`baton batches` shows and cancels what is in the database."""

import asyncio
import json

from baton.postgres.database import Database
from tests.integration.batches.test_line_store import OURS, Runner, database, runners, started
from tests.support.command_line import invoke

__all__ = ["database", "runners"]  # fixtures


async def test_operators_list_show_and_cancel(runners: list[Runner], database: Database) -> None:
    first = runners[0]
    await started(first, 2)
    batch = await started(first, 3, number=2)
    await first.write(await first.lines.claim(batch, 2))
    name = f"batch_{2:032x}"
    url = database._settings.url.get_secret_value()
    whose = ("--tenant", OURS.tenant, "--project", OURS.project, "--state-url", url)

    async def baton(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(invoke, ["batches", *words, *whose])
        return done.exit_code, done.output + str(done.exception or "")

    _, listed = await baton("ls", "--limit", "1", "--json")
    (one,) = json.loads(listed)
    assert (one["id"], one["lines"], one["completed"]) == (name, 3, 2)
    assert (one["prompt_tokens"], one["found_tokens"], one["computed_tokens"]) == (10, 4, 6)
    _, shown = await baton("show", name)
    assert "in_progress" in shown and "/v1/chat/completions" in shown
    assert await baton("cancel", name) == (0, f"{name} is cancelling.\n")
    assert await baton("cancel", name) == (0, f"{name} is cancelling.\n")
    code, said = await baton("show", f"batch_{9:032x}")
    assert code != 0
    assert "does not exist" in said
    _, table = await baton("ls")
    assert len(table.splitlines()) == 3
