"""docs/clickhouse.sql as statements, and as tables of a ClickHouse in this process."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "clickhouse.sql"
UPGRADE = SCHEMA.with_name("clickhouse-upgrade.sql")
VIRTUAL = {
    "_error": "String",
    "_raw_message": "String",
    "_partition": "Int64",
    "_offset": "Int64",
}
"""Columns added by the Kafka engine that the views read."""
_COMMENT = re.compile(r"--.*")
_NAME = re.compile(r"create (?:table|materialized view|view|database) if not exists ([\w.]+)")
_KAFKA = re.compile(r"\)\s*engine = Kafka\s.*", re.DOTALL)
_COLUMN = re.compile(r"^\s+(\w+) (.*?),?$", re.MULTILINE)


def statements() -> Mapping[str, str]:
    """Return the statements, in order, by the name of the object that each creates."""
    found = {}
    for statement in _split(SCHEMA):
        name = _NAME.match(statement)
        assert name is not None, statement
        assert name[1] not in found
        found[name[1]] = statement
    return found


def upgrade() -> list[str]:
    """Return the statements of docs/clickhouse-upgrade.sql, in order."""
    return _split(UPGRADE)


def without_columns(statement: str, columns: Iterable[str]) -> str:
    """Return a table or view as it was before it had these columns, none of which is its first."""
    names = "|".join(columns)
    return re.sub(rf",\s+(?:{names})\b[^,\n]*", "", statement)


def columns_of(statement: str) -> dict[str, str]:
    """Return the columns of a table, and their types."""
    begin, end = statement.index("("), statement.index("\n)")
    return dict(_COLUMN.findall(statement[begin:end]))


def without_kafka(statement: str) -> str:
    """Return a table of the Kafka engine as one that forwards inserted rows, as Kafka's does."""
    virtual = ", ".join(f"{name} {kind}" for name, kind in VIRTUAL.items())
    found, count = _KAFKA.subn(f", {virtual}) engine = Null", statement)
    assert count == 1
    return found


def _split(path: Path) -> list[str]:
    text = _COMMENT.sub("", path.read_text())
    return [statement for each in text.split(";") if (statement := each.strip())]
