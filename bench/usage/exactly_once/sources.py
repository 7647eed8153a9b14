"""Records in Postgres and in the topic."""

import msgspec

from baton.postgres.connecting import connected
from baton.settings import StateSettings
from baton.usage.record import UsageRecord, decode
from bench.harness.broker import messages


async def rows_of(state: StateSettings) -> list[UsageRecord]:
    """Return all rows of Postgres as records."""
    fields = [one.name for one in msgspec.structs.fields(UsageRecord)]
    columns = [
        f"(extract(epoch from {name.removesuffix('_ms')}) * 1000)::bigint as {name}"
        if name.endswith("_ms")
        else name
        for name in fields
    ]
    async with connected(state) as connection:
        rows = await connection.fetch(f"select {', '.join(columns)} from usage_records order by id")
    return [
        UsageRecord(
            **{**dict(row), "id": str(row["id"]), "finish_reasons": tuple(row["finish_reasons"])}
        )
        for row in rows
    ]


async def log_of(address: str, wanted: int) -> tuple[list[UsageRecord], int, list[str]]:
    """Return the topic's records without copies, the number of its messages, and problems.

    Args:
        address: the broker's address.
        wanted: number of expected records.
    """
    found: dict[str, UsageRecord] = {}
    problems: list[str] = []
    count = 0
    while len(found) < wanted and not problems:
        count += wanted - len(found)  # at least, as there are copies
        try:
            read = await messages(address, count)
        except TimeoutError as error:
            problems = [f"the log: {error}"]
            read = await messages(address, 1)
        count, found = len(read), {}
        problems += [
            f"{record.request_id}: two copies in the log differ"
            for record in (decode(one.value()) for one in read)
            if found.setdefault(record.id, record) != record
        ]
    return sorted(found.values(), key=lambda record: record.id), count, problems
