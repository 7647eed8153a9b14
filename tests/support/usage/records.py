"""Usage records for tests, and a sink for them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baton.settings import UsageSettings
from baton.spool.run import Run, claim
from baton.spool.sink import SinkError
from baton.usage.record import LOST, RecordIds, UsageRecord, decode

DAY_MS = 86_400_000
_ids = RecordIds()


def begun(request_id: str = "r", **fields: Any) -> UsageRecord:
    """Return the fields of a request that are known when it begins."""
    known: dict[str, Any] = {
        "id": _ids.draw(fields.get("began_ms", DAY_MS)),
        "request_id": request_id,
        "tenant": "acme",
        "project": "proj_1",
        "key": "key_1",
        "tier": "pro",
        "model": "m",
        "weights": "77",
        "operation": "chat",
        "frontend": "frontend-0",
        "began_ms": DAY_MS,
        "prompt_tokens": 10,
        "outcome": LOST,
    }
    return UsageRecord(**{**known, **fields})


def ended(record: UsageRecord, **fields: Any) -> UsageRecord:
    """Return the record of a request that succeeded."""
    known: dict[str, Any] = {
        "outcome": "ok",
        "cached_tokens": 4,
        "output_tokens": 5,
        "seconds": 1.5,
        "first_token_seconds": 0.5,
        "finish_reasons": ("stop",),
    }
    values = {name: getattr(record, name) for name in UsageRecord.__struct_fields__}
    return UsageRecord(**{**values, **known, **fields})


def usage_settings(path: Path, **fields: Any) -> UsageSettings:
    return UsageSettings(spool_path=path, **fields)


def crashed(spool: Path, to: Path) -> Path:
    """Return a copy of a spool as a crash of all its processes would leave it now."""
    shutil.copytree(spool, to)
    return to


def new_run(path: Path, *sinks: str) -> Run:
    """Return a run of this process in a spool."""
    return claim(path, sinks or ("list",))[0]


class ListSink:
    """Keeps the records that it receives, and fails while the test sets it to."""

    name = "list"
    local = False

    def __init__(self) -> None:
        self.records: list[UsageRecord] = []
        self.fails = False
        self.failed = 0

    async def write(self, records: Sequence[bytes]) -> None:
        if self.fails:
            self.failed += 1
            raise SinkError("it is away")
        self.records += map(decode, records)

    async def close(self) -> None:
        """Nothing to release."""
