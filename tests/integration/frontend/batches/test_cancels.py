"""Cancelling a batch in each of its states, as OpenAI's clients expect it."""

import openai
import pytest

from baton.postgres.database import Database
from tests.integration.frontend.batches.test_openai_batches import CHAT, chat_line, ended, upload
from tests.support.clock import DEADLINE_SECONDS
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends

SET = """
update batches set status = $1, outcome = $2, in_progress_at = null, cancelling_at = null,
    lease_until = now() + interval '1 hour', ended_at = case when $3 then now() end
"""
ACCEPTED = {
    "validating": "cancelling",
    "in_progress": "cancelling",
    "cancelling": "cancelling",
    "cancelled": "cancelled",
}
"""States in which a batch may be cancelled, and those that the response has."""
REJECTED = ("finalizing", "completed", "failed", "expired")


async def test_a_batch_may_be_cancelled_until_its_output_is_written(frontends: Frontends) -> None:
    client = frontends.clients[0]
    made = await client.batches.create(
        input_file_id=await upload(client, [chat_line(1)]), endpoint=CHAT, completion_window="24h"
    )
    await ended(client, made.id)
    async with Database(state_settings(frontends.url)) as database:
        await database.wait_available(DEADLINE_SECONDS)

        async def enter(status: str) -> None:
            outcome = "cancelled" if status.startswith("cancel") else "completed"
            over = status not in ("validating", "in_progress", "finalizing", "cancelling")
            await database.execute(SET, status, outcome, over)

        for status, then in ACCEPTED.items():
            await enter(status)
            found = await client.batches.cancel(made.id)
            assert (found.id, found.status) == (made.id, then)
            assert (found.cancelling_at is None) is status.startswith("cancel")
        for status in REJECTED:
            await enter(status)
            with pytest.raises(openai.ConflictError) as caught:
                await client.batches.cancel(made.id)
            assert f"Cannot cancel a batch with status '{status}'." in str(caught.value)
            body = caught.value.response.json()["error"]
            assert (body["type"], body["code"]) == ("invalid_request_error", "batch_ended")
            assert caught.value.response.headers["x-should-retry"] == "false"
            assert (await client.batches.retrieve(made.id)).status == status
        # One that was not checked yet ends without files.
        await enter("validating")
        await client.batches.cancel(made.id)
        await database.execute("update batches set lease_until = now()")
        batch = await ended(client, made.id)
        assert (batch.status, batch.output_file_id, batch.error_file_id) == (
            "cancelled",
            None,
            None,
        )
