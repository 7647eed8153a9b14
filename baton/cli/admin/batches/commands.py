"""Implementation of `baton batches …`: over Postgres, as `baton conversations`."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rich.console import Console

from baton.batches.forecasts import BatchForecast, ForecastStore
from baton.batches.records import StoredBatch
from baton.batches.store import BatchStore
from baton.batches.urgency import SHARES
from baton.cli.admin.stored import run_stored, time_text
from baton.cli.shared.table import TextTable, show
from baton.conversations.records import StateScope
from baton.files.records import file_text
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from baton.settings import StateSettings

_MOMENTS = (
    *("created_at", "in_progress_at", "finalizing_at", "cancelling_at", "ended_at"),
    "expires_at",
)
_NO_LEASES = 1.0
"""Seconds of leases, of which commands take none."""
R = TypeVar("R")


def list_batches(
    settings: StateSettings,
    tenant: str,
    project: str,
    limit: int,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Print a project's newest batches.

    Raises:
        CommandError: the database is away.
    """
    scope = StateScope(tenant, project)
    found = _run(settings, lambda store: store.recent(scope, limit, None))
    if as_json:
        console.print_json(json.dumps([_shown(one) for one in found]))
        return
    table = TextTable(
        ("batch", "status", "endpoint", "lines", "ended", "failed", "created", "expires"),
        right=frozenset({"lines", "ended", "failed"}),
    )
    for one in found:
        ended = str(one.completed + one.failed)
        times = time_text(one.created_at), time_text(one.expires_at)
        table.add(
            one.text, one.status, one.endpoint, str(one.total), ended, str(one.failed), *times
        )
    show(console, table)


def show_batch(
    settings: StateSettings,
    tenant: str,
    project: str,
    batch: str,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Print a batch.

    Raises:
        CommandError: it does not exist, or the database is away.
    """
    scope = StateScope(tenant, project)

    async def read(database: Database) -> tuple[StoredBatch, BatchForecast | None]:
        one = await BatchStore(database, "", _NO_LEASES).get(scope, batch)
        return one, await ForecastStore(database).get(tenant, one.id)

    one, forecast = run_stored(settings, "batches", BATCHES, read)
    found = _shown(one) | _foretold(one, forecast)
    if as_json:
        console.print_json(json.dumps(found))
        return
    table = TextTable(("field", "value"))
    for name, value in found.items():
        if value not in (None, "", []):
            table.add(name, value if isinstance(value, str) else json.dumps(value))
    show(console, table)


def cancel_batch(settings: StateSettings, tenant: str, project: str, batch: str) -> str:
    """Cancel a batch, and return its status; errors as of `show_batch`, and if it has ended."""
    scope = StateScope(tenant, project)
    return _run(settings, lambda store: store.cancel(scope, batch)).status


def _run(settings: StateSettings, what: Callable[[BatchStore], Awaitable[R]]) -> R:
    return run_stored(
        settings, "batches", BATCHES, lambda found: what(BatchStore(found, "", _NO_LEASES))
    )


def _foretold(one: StoredBatch, told: BatchForecast | None) -> dict[str, Any]:
    """Return what was last predicted while a batch ran, and when it was first said to be late."""
    if told is None:
        return {}
    at = told.completes_at
    late = 0.0 if at is None else (at - one.expires_at).total_seconds()
    return {
        "urgent_share": SHARES[told.step],
        "predicted_completion": at and time_text(at),
        "predicted_late_seconds": round(late, 1) if late > 0 else None,
        "late_since": told.late_since and time_text(told.late_since),
        "late_seconds": told.late_seconds,
    }


def _shown(one: StoredBatch) -> dict[str, Any]:
    """Return what operators see of a batch. Prompt tokens are found in the cache or computed."""
    moments = {name: getattr(one, name) for name in _MOMENTS}
    return {
        "id": one.text,
        "status": one.status,
        "key": one.key,
        "endpoint": one.endpoint,
        "model": one.model,
        "input_file": file_text(one.input_file),
        "output_file": file_text(one.output_file) if one.output_file else None,
        "error_file": file_text(one.error_file) if one.error_file else None,
        "lines": one.total,
        "completed": one.completed,
        "failed": one.failed,
        "prompt_tokens": one.prompt_tokens,
        "found_tokens": one.cached_tokens,
        "computed_tokens": one.prompt_tokens - one.cached_tokens,
        "output_tokens": one.output_tokens,
        **{name: time_text(moment) for name, moment in moments.items() if moment is not None},
        "metadata": json.loads(one.metadata) or None,
        "errors": json.loads(one.errors) if one.errors else [],
    }
