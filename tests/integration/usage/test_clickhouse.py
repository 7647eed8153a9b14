"""What ClickHouse makes of the request log: the sums of the records, though messages come twice."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from baton.request.prices import PriceTable
from baton.settings import KafkaSettings
from baton.usage.record import UsageRecord, encode
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.totals import PRICE_COLUMNS, Totals, totals_by
from baton.usage.sinks.kafka.sink import KafkaSink
from tests.support.usage.clickhouse import columns_of, statements, without_kafka
from tests.support.usage.kafka import TOPIC, broker, messages
from tests.support.usage.records import DAY_MS, begun, ended

pytestmark = pytest.mark.clickhouse
QUEUE = "baton.usage_queue"
COUNT = 2000


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[Any]:
    """A ClickHouse in this process with the tables of docs/clickhouse.sql."""
    from chdb.session import Session

    session = Session(str(tmp_path / "clickhouse"))
    for name, statement in statements().items():
        session.query(without_kafka(statement) if name == QUEUE else statement)
    yield session
    session.close()


def rows(session: Any, query: str) -> list[dict[str, Any]]:
    text = str(session.query(f"{query} format JSONEachRow"))
    return [json.loads(line, parse_float=str) for line in text.splitlines()]


def insert(session: Any, lines: list[bytes]) -> None:
    """Insert messages as the Kafka engine does: what it cannot read is an error, not a row."""
    columns = ", ".join(columns_of(statements()[QUEUE]))
    body = b"\n".join(lines).decode()
    session.query(f"insert into {QUEUE} ({columns}) format JSONEachRow {body}")


def drawn(draw: random.Random) -> UsageRecord:
    """A record of any kind that there is."""
    record = begun(
        f"r-{draw.random()}",
        tenant=draw.choice(["acme", 'o\'neill \\ "sons"']),
        project=draw.choice(["", "proj_1", "proj_2"]),
        batch=draw.random() < 0.3,
        model="org/modèle",
        began_ms=20_000 * DAY_MS + draw.randrange(3 * DAY_MS),
        prompt_tokens=draw.randrange(1, 200_000),
    )
    if draw.random() < 0.1:
        return record
    return ended(
        record,
        outcome=draw.choice(["ok", "ok", "CANCELLED"]),
        cached_tokens=draw.choice([None, 0, 17]),
        output_tokens=draw.choice([None, 0, draw.randrange(10_000)]),
        first_token_seconds=draw.choice([None, 0.25]),
        finish_reasons=draw.choice([(), ("stop",), ("length", "")]),
        # Beyond what a float holds exactly.
        cost_nanodollars=draw.choice([None, 0, 1, draw.randrange(2**53, 2**58)]),
    )


Team = tuple[str, str | None, str | None]
"""Day, tenant and project."""


def team_of(group: UsageGroup) -> Team:
    day = datetime.fromtimestamp(group.begin, UTC).date().isoformat()
    return day, group.labels.tenant, group.labels.project


def totals(row: dict[str, Any]) -> tuple[Team, Totals]:
    team = (row.pop("day"), row.pop("tenant"), row.pop("project"))
    dollars = row.pop("dollars")
    found = Totals(**{name: int(value) for name, value in row.items()})
    whole, _, part = str(dollars).partition(".")
    assert int(whole) * 10**9 + int(part.ljust(9, "0")) == found.cost_nanodollars
    return team, found


async def test_sums_per_team_and_day_are_those_of_the_records(clickhouse: Any) -> None:
    draw = random.Random(16)
    records = [drawn(draw) for _ in range(COUNT)]
    lines = [encode(record) for record in records]
    async with broker() as one:
        settings = KafkaSettings(brokers=(one.address,), topic=TOPIC)
        sink = KafkaSink(settings)
        for begin in range(0, COUNT, 500):
            await sink.write(lines[begin : begin + 500])
        await sink.write(lines[250:900])  # as after an answer that did not come
        found = [message.value() for message in await messages(one.address, COUNT + 650)]
        await sink.close()
    assert len(found) == COUNT + 650
    draw.shuffle(found)
    for begin in range(0, len(found), 700):
        insert(clickhouse, found[begin : begin + 700])
    insert(clickhouse, found[:300])  # a consumer that begins again before its last offsets

    by_day = dict(totals(row) for row in rows(clickhouse, "select * from baton.usage_by_day"))
    days = Question(width=86_400, by=("tenant", "project", *PRICE_COLUMNS))
    wanted = totals_by(days.answer(records), team_of, PriceTable({}))
    for one in wanted.values():
        one.provider_unpriced = 0  # ClickHouse knows no provider's prices
    assert by_day == wanted
    (count,) = rows(clickhouse, "select count() as count from baton.usage_records final")
    assert int(count["count"]) == COUNT
    clickhouse.query("optimize table baton.usage_records final")
    (count,) = rows(clickhouse, "select count() as count from baton.usage_records")
    assert int(count["count"]) == COUNT


def test_all_fields_come_as_they_are(clickhouse: Any) -> None:
    draw = random.Random(17)
    records = {record.id: record for record in (drawn(draw) for _ in range(50))}
    insert(clickhouse, [encode(record) for record in records.values()])
    clickhouse.query("set output_format_json_quote_64bit_integers = 0")
    for row in rows(clickhouse, "select * from baton.usage_records final"):
        record = records.pop(row["id"])
        wanted = {
            name: list(value) if isinstance(value, tuple) else value
            for name in record.__struct_fields__
            for value in [getattr(record, name)]
        }
        numbers = {name for name, value in wanted.items() if isinstance(value, float)}
        assert {
            name: float(value) if name in numbers else value for name, value in row.items()
        } == wanted
    assert not records


def test_fields_of_later_releases_are_passed_over(clickhouse: Any) -> None:
    line = encode(ended(begun("one"))).replace(b"{", b'{"later":{"a":[1]},', 1)
    insert(clickhouse, [line])
    (row,) = rows(clickhouse, "select request_id from baton.usage_records")
    assert row == {"request_id": "one"}


def test_what_is_no_record_is_kept_beside_them(clickhouse: Any) -> None:
    clickhouse.query(
        f"insert into {QUEUE} (_error, _raw_message, _partition, _offset) "
        "values ('no JSON', '{', 3, 17)"
    )
    assert rows(clickhouse, "select * from baton.usage_records") == []
    (row,) = rows(clickhouse, "select * except received from baton.usage_errors")
    assert row == {"partition": 3, "offset": 17, "error": "no JSON", "message": "{"}
