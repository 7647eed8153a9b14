"""Batches whose budget, key, tenant, file or model goes while their lines run."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.integration.frontend.batches.conftest import Keyed
from tests.integration.frontend.batches.test_openai_batches import (
    CHAT,
    chat_line,
    ended,
    lines_of,
    upload,
)
from tests.support.command_line import invoke
from tests.support.wait import eventually

LEFT = """
select (select count(*) from batches where tenant = $1) + (select count(*) from files where tenant
    = $1) + (select count(*) from batch_lines where tenant = $1) + (select count(*) from
    orphaned_objects) as left
"""
PROMPT, OUTPUT = 19, 3
RETURNED = "baton_batch_lines_total"
COST = PROMPT * 1000 + OUTPUT * 5000
"""Of a line with a number of two digits, in nano-dollars."""


async def create(client: Any, lines: list[dict[str, Any]]) -> Any:
    file = await upload(client, lines)
    return await client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")


async def runs(client: Any, batch: str, count: int = 1) -> Any:
    """Return a batch once so many of its lines have ended, of which more are to come."""

    async def has_some() -> Any:
        found = await client.batches.retrieve(batch)
        done = found.request_counts.completed + found.request_counts.failed
        assert found.status in ("validating", "in_progress"), found
        return found if done >= count else None

    return await eventually(has_some)


async def files_of(client: Any, batch: Any) -> tuple[list[Any], list[Any]]:
    """Return the lines of output and error file, which have each line of the input once."""
    found = []
    for file in (batch.output_file_id, batch.error_file_id):
        lines = await lines_of(client, file) if file else []
        numbers = [int(line["custom_id"][1:]) for line in lines]
        assert numbers == sorted(numbers)
        found.append(lines)
    counts, names = batch.request_counts, [line["custom_id"] for part in found for line in part]
    assert len(set(names)) == len(names) == counts.total
    assert [len(part) for part in found] == [counts.completed, counts.failed]
    return found[0], found[1]


async def test_lines_beyond_the_budget_fail_and_others_are_paid_in_full(keyed: Keyed) -> None:
    _, client = await keyed.client("small", budget_nanodollars_per_month=12 * COST + COST - 1)
    lines = [chat_line(number, ignore_eos=True) for number in range(10, 40)]
    made = await create(client, lines)
    batch = await ended(client, made.id)
    assert batch.status == "completed"
    output, errors = await files_of(client, batch)
    assert (len(output), len(errors)) == (12, 18)
    codes = Counter((one["error"]["code"], one["response"]["status_code"]) for one in errors)
    assert codes == {("insufficient_quota", 429): 18}
    assert "has a budget of" in errors[0]["error"]["message"]
    usages = [line["response"]["body"]["usage"] for line in output]
    tokens = {(usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages}
    assert tokens == {(PROMPT, OUTPUT)}


async def test_lines_of_a_revoked_key_fail_and_its_project_reads_them(keyed: Keyed) -> None:
    key, client = await keyed.client("acme")
    _, other = await keyed.client("acme")
    made = await create(client, [chat_line(number, max_tokens=20) for number in range(60)])
    await runs(other, made.id)
    await keyed.admin.revoke_key(key)
    batch = await ended(other, made.id)
    assert batch.status == "completed"
    output, errors = await files_of(other, batch)
    assert output and errors
    assert {one["error"]["code"] for one in errors} == {"invalid_api_key"}
    assert {one["response"]["status_code"] for one in errors} == {401}


async def test_nothing_of_a_deleted_tenant_stays_and_others_run_on(keyed: Keyed, etcd: Any) -> None:
    _, client = await keyed.client("acme")
    _, other = await keyed.client("other")
    made = await create(client, [chat_line(number, max_tokens=50) for number in range(200)])
    going_on = await create(other, [chat_line(number, max_tokens=20) for number in range(20)])
    await runs(client, made.id)
    endpoints = ",".join(etcd.endpoints)
    words = ["db", "forget", "acme", "--state-url", keyed.url, "--etcd-endpoint", endpoints]
    done = await asyncio.to_thread(invoke, [*words, "--cluster", keyed.cluster.name])
    assert done.exit_code == 0, done.output
    assert "1 of batches" in done.output and "1 of files" in done.output

    async def nothing() -> bool:
        return (await keyed.database.fetch(LEFT, "acme"))[0]["left"] == 0

    assert await eventually(nothing)
    batch = await ended(other, going_on.id)
    output, errors = await files_of(other, batch)
    assert (batch.status, len(output), errors) == ("completed", 20, [])
    assert await nothing()  # what ran meanwhile wrote nothing
    kept = {file.id.removeprefix("file_") async for file in other.files.list()}
    assert {path.name for path in keyed.directory.iterdir()} == kept


@pytest.mark.parametrize("checked", [True, False])
async def test_the_input_may_be_deleted_once_it_is_checked(keyed: Keyed, checked: bool) -> None:
    _, client = await keyed.client("acme")
    if not checked:  # none checks it
        await keyed.cluster["frontend-1"].stop()
        await keyed.start(**{"batches.max_running": 0})
        _, client = await keyed.client("acme")
    made = await create(client, [chat_line(number, max_tokens=20) for number in range(20)])
    if checked:
        await runs(client, made.id)
    await client.files.delete(made.input_file_id)
    if checked:
        batch = await ended(client, made.id)
        output, errors = await files_of(client, batch)
        assert (batch.status, len(output), errors) == ("completed", 20, [])
        return
    await keyed.cluster["frontend-1"].stop()
    await keyed.start()
    _, client = await keyed.client("acme")
    batch = await ended(client, made.id)
    (error,) = batch.errors.data
    assert (batch.status, error.code) == ("failed", "not_found")
    assert made.input_file_id in error.message


async def test_lines_wait_for_their_model_until_the_batch_expires(keyed: Keyed) -> None:
    _, client = await keyed.client("acme")
    made = await create(client, [chat_line(number, max_tokens=20) for number in range(40)])
    await runs(client, made.id)
    await keyed.cluster["combined-0"].stop()

    def waits() -> bool:
        return bool(keyed.cluster["frontend-1"].sample(RETURNED, result="returned"))

    assert await eventually(waits)
    before = await client.batches.retrieve(made.id)
    assert before.status == "in_progress"
    await keyed.database.execute("update batches set expires_at = now()")
    batch = await ended(client, made.id)
    assert batch.status == "expired" and batch.expired_at
    output, errors = await files_of(client, batch)
    assert len(output) == before.request_counts.completed > 0
    assert {one["error"]["code"] for one in errors} == {"batch_expired"}
