"""What ClickHouse makes of the request log: the sums of the records, though messages come twice."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from baton.request.prices import PriceTable
from baton.settings import KafkaSettings
from baton.usage.path import RequestPath
from baton.usage.record import UsageRecord, encode
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.totals import PRICE_COLUMNS, Totals, totals_by
from baton.usage.sinks.kafka.sink import KafkaSink
from tests.support.usage.clickhouse import (
    columns_of,
    statements,
    upgrade,
    without_columns,
    without_kafka,
)
from tests.support.usage.kafka import TOPIC, broker, messages
from tests.support.usage.records import DAY_MS, begun, ended

pytestmark = pytest.mark.clickhouse
QUEUE = "baton.usage_queue"
COUNT = 2000


NEW = RequestPath.__struct_fields__
"""Columns that tables of the first release lack."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Any]:
    """A ClickHouse in this process."""
    from chdb.session import Session

    session = Session(str(tmp_path / "clickhouse"))
    yield session
    session.close()


@pytest.fixture
def clickhouse(empty: Any) -> Any:
    """One with the tables of docs/clickhouse.sql."""
    create(empty, statements())
    return empty


def create(session: Any, made: Mapping[str, str]) -> None:
    for name, statement in made.items():
        session.query(without_kafka(statement) if name == QUEUE else statement)


def rows(session: Any, query: str) -> list[dict[str, Any]]:
    text = str(session.query(f"{query} format JSONEachRow"))
    return [json.loads(line, parse_float=str) for line in text.splitlines()]


def insert(session: Any, lines: list[bytes], without: Sequence[str] = ()) -> None:
    """Insert messages as the Kafka engine does: what it cannot read is an error, not a row."""
    columns = ", ".join(name for name in columns_of(statements()[QUEUE]) if name not in without)
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


def test_tables_of_an_earlier_release_are_upgraded(empty: Any) -> None:
    create(empty, {name: without_columns(text, NEW) for name, text in statements().items()})
    before, between, after = (ended(begun(name)) for name in ("before", "between", "after"))
    path = RequestPath(priority_class="batch", router="r0", moves=2, decode_seconds=0.25)
    fields = {name: getattr(path, name) for name in NEW}
    between, after = replace(between, **fields), replace(after, **fields)
    insert(empty, [encode(before)], without=NEW)
    insert(empty, [encode(between)], without=NEW)  # of a new frontend, before the upgrade
    for _ in range(2):
        for statement in upgrade():
            empty.query(statement)
        create(empty, statements())
    insert(empty, [encode(after)])
    empty.query("set output_format_json_quote_64bit_integers = 0")
    names = ", ".join(("request_id", "output_tokens", "priority_class", "moves", "decode_seconds"))
    query = f"select {names} from baton.usage_records final order by began_ms, request_id"
    assert [tuple(row.values()) for row in rows(empty, query)] == [
        ("after", 5, "batch", 2, "0.25"),
        ("before", 5, "", None, None),
        ("between", 5, "", None, None),
    ]
    (day,) = rows(empty, "select requests, output_tokens from baton.usage_by_day")
    assert day == {"requests": 3, "output_tokens": 15}
    for table in ("baton.usage_records", QUEUE):
        has = {row["name"]: row["type"] for row in rows(empty, f"describe table {table}")}
        for name, kind in columns_of(statements()[table]).items():
            assert has[name] == kind.partition(" ")[0], name
    problem = f"insert into {QUEUE} (_error, _raw_message) values ('no JSON', '{{')"
    empty.query(problem)
    assert rows(empty, "select message from baton.usage_errors") == [{"message": "{"}]
