"""Formatting of an ended request: why it was slow, and what each part of it took."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console

from baton.cli.shared.table import TextTable, show
from baton.history.cause import cause_of, phases_of
from baton.request.durations import duration
from baton.usage.record import UsageRecord


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """An ended request."""

    record: UsageRecord
    error: str = ""
    """Message of the error that ended it."""
    kind: str = ""
    """Why a router keeps it; empty: it comes from usage records."""
    router: str = ""
    """The router that keeps it."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON, with its cause."""
        return {
            "kept_by": self.router,
            "kind": self.kind,
            "cause": cause_of(self.record, self.error),
            "record": msgspec.to_builtins(self.record),
        }


def print_ended(console: Console, ended: EndedRequest) -> None:
    """Print why a request was slow or failed, and its parts."""
    record = ended.record
    began = datetime.fromtimestamp(record.began_ms / 1e3, UTC).isoformat(" ", "seconds")
    place = f"kept by {ended.router} as {ended.kind}" if ended.router else "from its usage record"
    owner = f"tenant {record.tenant}"
    if record.project:
        owner += f", project {record.project}, key {record.key}"
    lines = [
        f"Request {record.request_id}: {record.prompt_tokens} prompt tokens of {owner} for "
        f"{record.adapter or record.model}, at {began.removesuffix('+00:00')} UTC, {place}.",
        cause_of(record, ended.error),
    ]
    if record.cache_tier:
        found = f"{record.cached_tokens or 0} of {record.prompt_tokens} prompt tokens"
        lines.append(f"Cached: {found}; its router found a prefix in the tier {record.cache_tier}.")
    if record.provider:
        lines.append(f"Ran at the provider {record.provider}.")
    if record.placement_reason:
        lines.append(f"Placed: {record.placement_reason}.")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    show(console, parts_table(record))
    console.print()


def parts_table(record: UsageRecord) -> TextTable:
    """Return what each part of a request took, and what was expected."""
    table = TextTable(
        ("part", "took", "expected"), right=frozenset({"took", "expected"}), note_heading="where"
    )
    for phase in phases_of(record):
        note = f"{phase.what} ({phase.compared})"
        table.add(phase.name, duration(phase.seconds), duration(phase.expected), note=note)
    return table
