"""The table `usage_records` of Postgres: a row per record, even if it is delivered several times.

A batch is one statement, so that it is atomic. Postgres itself parses the JSON: the event loop only
joins the lines, and fields that a newer release added are ignored.
"""

from collections.abc import Sequence

import msgspec

from baton.cluster.forgotten import ForgottenTenants
from baton.postgres.connecting import RefusedError, StateError
from baton.postgres.database import Database
from baton.spool.sink import SinkError
from baton.telemetry.logs import get_logger
from baton.usage.metrics import REFUSED
from baton.usage.record import UsageRecord

WAIT_SECONDS = 60.0
"""Timeout for an unavailable database: records are delivered as soon as it is back."""

log = get_logger(__name__)

_TYPES = {
    str: "text",
    int: "bigint",
    float: "double precision",
    bool: "boolean",
    tuple[str, ...]: "text[]",
}


def _statement() -> str:
    """Return the statement, from the fields of `UsageRecord`: columns have the same names."""
    columns, values, types = [], [], []
    for field in msgspec.structs.fields(UsageRecord):
        kind = getattr(field.type, "__args__", None)
        plain = kind[0] if kind is not None and type(None) in kind else field.type
        name, sql = field.name, "uuid" if field.name == "id" else _TYPES[plain]
        types.append(f"{name} {sql}")
        columns.append(name.removesuffix("_ms"))
        if name.endswith("_ms"):
            values.append(f"timestamptz 'epoch' + {name} * interval '1 millisecond'")
        elif field.required or field.default is None:
            values.append(name)
        else:  # omitted from the JSON
            values.append(f"coalesce({name}, {_LITERALS[field.default]})")
    return (
        f"insert into usage_records ({', '.join(columns)}) select {', '.join(values)} "
        f"from json_to_recordset($1) as record ({', '.join(types)}) on conflict (id) do nothing"
    )


_LITERALS: dict[object, str] = {"": "''", False: "false", (): "'{}'"}
INSERT = _statement()


class _Owner(msgspec.Struct):
    tenant: str
    began_ms: int


_owner_of = msgspec.json.Decoder(_Owner).decode


class PostgresSink:
    """Inserts records; those whose ID exists are skipped.

    A record that Postgres rejects, because of a value that its column cannot have, is logged as an
    error in full, and counted: the others of its batch are inserted. Those of tenants that were
    deleted since are dropped.

    Args:
        database: where they go.
        forgotten: the deleted tenants; None: none.
    """

    name = "postgres"
    local = False

    def __init__(self, database: Database, forgotten: ForgottenTenants | None = None) -> None:
        self._database = database
        self._forgotten = ForgottenTenants() if forgotten is None else forgotten

    async def write(self, records: Sequence[bytes]) -> None:
        """Insert records; return once they are committed.

        Raises:
            SinkError: it is unknown whether they are. Either all are stored or none.
        """
        try:
            await self._database.wait_available(WAIT_SECONDS)
            if len(self._forgotten):
                records = [record for record in records if not self._is_forgotten(record)]
            if records:
                await self._insert(records)
        except StateError as error:
            raise SinkError(str(error)) from error

    async def close(self) -> None:
        """Do nothing: the connections belong to the database."""

    def _is_forgotten(self, record: bytes) -> bool:
        owner = _owner_of(record)
        return self._forgotten.has(owner.tenant, owner.began_ms, usage=True)

    async def _insert(self, records: Sequence[bytes]) -> None:
        try:
            await self._database.execute(INSERT, (b"[%b]" % b",".join(records)).decode())
        except RefusedError as error:
            if len(records) == 1:
                REFUSED.labels(self.name).inc()
                record = records[0].decode(errors="backslashreplace")
                log.error("usage.record.refused", sink=self.name, error=str(error), record=record)
                return
            half = len(records) // 2
            await self._insert(records[:half])
            await self._insert(records[half:])
