"""docs/clickhouse.sql is about the records that there are; its statements run in another lane."""

import re

import msgspec

from baton.usage.path import RequestPath
from baton.usage.record import UsageRecord
from tests.support.usage.clickhouse import UPGRADE, columns_of, statements

SETTING = re.compile(r"(\w+) = ('[^']*'|\d+)")


def test_the_queue_the_records_and_what_is_between_them_have_the_fields_of_a_record() -> None:
    made = statements()
    queue, records = columns_of(made["baton.usage_queue"]), columns_of(made["baton.usage_records"])
    assert (
        records.pop("day") == "Date materialized toDate(fromUnixTimestamp64Milli(began_ms, 'UTC'))"
    )
    assert queue == records
    assert set(queue) == set(UsageRecord.__struct_fields__)
    select = made["baton.usage_to_records"].partition("select")[2].partition("from")[0]
    assert re.findall(r"\w+", select) == [*queue]


def test_a_column_may_be_null_where_its_field_may_be_left_out() -> None:
    queue = columns_of(statements()["baton.usage_queue"])
    annotations = {field.name: field.type for field in msgspec.structs.fields(UsageRecord)}
    nullable = {name for name, kind in queue.items() if kind.startswith("Nullable(")}
    assert nullable == {name for name, kind in annotations.items() if type(None) in _parts(kind)}
    kinds = {name: re.sub(r"^Nullable\((.*)\)$", r"\1", kind) for name, kind in queue.items()}
    integers = {name for name, kind in annotations.items() if int in _parts(kind)}
    assert {name for name, kind in kinds.items() if "Int64" in kind} == integers
    # Money may not be rounded.
    assert kinds["cost_nanodollars"] == "Int64"


def _parts(kind: object) -> tuple[object, ...]:
    return getattr(kind, "__args__", (kind,))


def test_the_upgrade_adds_the_columns_that_the_first_release_had_not() -> None:
    text = UPGRADE.read_text()
    added = dict(re.findall(r"add column if not exists (\w+) (.*?)[,;]", text))
    records = columns_of(statements()["baton.usage_records"])
    assert set(added) == set(RequestPath.__struct_fields__)
    assert added == {name: records[name] for name in added}
    dropped = set(re.findall(r"drop (?:view|table) if exists ([\w.]+)", text))
    assert dropped == {"baton.usage_queue", "baton.usage_to_records", "baton.usage_to_errors"}


def test_copies_of_a_record_replace_each_other() -> None:
    """They do where they are equal in the sorting key, and in one partition."""
    records = statements()["baton.usage_records"]
    assert "engine = ReplacingMergeTree\n" in records
    key = re.search(r"order by \((.*)\)", records)
    assert key is not None
    assert "id" in key[1].split(", ")
    assert "final" in statements()["baton.usage_by_day"]


def test_the_queue_reads_the_topic_of_the_settings() -> None:
    from baton.settings import KafkaSettings

    queue = statements()["baton.usage_queue"]
    found = dict(SETTING.findall(queue.partition("settings")[2]))
    assert found == {
        "kafka_broker_list": "'kafka-0:9092,kafka-1:9092'",
        "kafka_topic_list": f"'{KafkaSettings().topic}'",
        "kafka_group_name": "'baton-usage'",
        "kafka_format": "'JSONEachRow'",
        "kafka_num_consumers": "1",
        "kafka_handle_error_mode": "'stream'",
    }
