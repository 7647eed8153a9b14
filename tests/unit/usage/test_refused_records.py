"""Records that Postgres refuses: those alone are passed over, whatever batch they stand in."""

import json
from math import ceil, log2
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from baton.postgres.connecting import RefusedError
from baton.postgres.database import Database
from baton.usage.sinks.postgres import PostgresSink


class PickyDatabase:
    """Takes batches whole or not at all, as Postgres does."""

    def __init__(self, refused: set[int]) -> None:
        self._refused = refused
        self.rows: list[int] = []
        self.statements = 0

    async def wait_available(self, seconds: float) -> None:
        """It is."""

    async def execute(self, query: str, lines: str) -> str:
        self.statements += 1
        numbers = json.loads(lines)
        if self._refused & set(numbers):
            raise RefusedError("out of range")
        self.rows += numbers
        return ""


@given(st.integers(1, 400), st.sets(st.integers(0, 399), max_size=6))
async def test_all_others_are_there_once_in_order(count: int, refused: set[int]) -> None:
    refused = {number for number in refused if number < count}
    database = PickyDatabase(refused)
    with capture_logs() as logs:
        await PostgresSink(cast(Database, database)).write(
            [str(number).encode() for number in range(count)]
        )
    assert database.rows == [number for number in range(count) if number not in refused]
    told: list[dict[str, Any]] = [one for one in logs if one["event"] == "usage.record.refused"]
    assert [int(one["record"]) for one in told] == sorted(refused)
    assert database.statements <= 1 + 2 * len(refused) * ceil(log2(count) if count > 1 else 0)
