"""Lines in Postgres' binary COPY format: rows are made on the thread that checks them.

The format: https://www.postgresql.org/docs/current/sql-copy.html
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from struct import Struct
from uuid import UUID

from baton.batches.records import NewLine

COLUMNS = "tenant", "batch", "number", "custom_id", "body", "prefix"
_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_count, _field, _number = Struct(">h"), Struct(">i"), Struct(">iii")
_NUMBER_BYTES = 4


class LineRows:
    """Makes the rows of a batch's lines. Any thread may use it.

    Args:
        tenant: whose batch it is.
        batch: its id.
    """

    def __init__(self, tenant: str, batch: UUID) -> None:
        self._begin = _count.pack(len(COLUMNS)) + _of(tenant.encode()) + _of(batch.bytes)

    def of(self, lines: Iterable[NewLine]) -> bytes:
        """Return the rows of lines, in the order of `COLUMNS`."""
        parts: list[bytes] = []
        for number, custom_id, body, prefix in lines:
            name = custom_id.encode()
            parts += (
                self._begin,
                _number.pack(_NUMBER_BYTES, number, len(name)),
                name,
                _field.pack(len(body)),
                body,
                _field.pack(len(prefix)),
                prefix,
            )
        return b"".join(parts)


async def copied(rows: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of a COPY with these rows."""
    yield _START
    async for some in rows:
        yield some
    yield _END


def _of(value: bytes) -> bytes:
    return _field.pack(len(value)) + value
