"""A query over usage records, and the sums that answer it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from baton.usage.record import LOST, UsageRecord

Column = Literal["tenant", "project", "key", "model", "adapter", "tier", "batch", "priced"]
COLUMNS: tuple[Column, ...] = get_args(Column)
"""Columns to group by. `priced` separates requests whose cost is known from others."""
MAX_SECONDS = 10**11
"""The latest time that can be queried, in seconds since the Unix epoch; in the year 5138."""

BATCH_ITEM = ", batch"
"""Suffix of the line items of batch requests."""


class Labels(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Values that the records of a group have in common; None for a column that is not grouped
    by."""

    tenant: str | None = None
    project: str | None = None
    key: str | None = None
    model: str | None = None
    adapter: str | None = None
    tier: str | None = None
    batch: bool | None = None
    priced: bool | None = None

    @property
    def name(self) -> str:
        """Name by which the model was requested: the adapter's if there is one."""
        return self.adapter or self.model or ""

    @property
    def line_item(self) -> str:
        """Line item on a bill: the name, and whether it ran as batch, which may have another
        price."""
        return self.name + (BATCH_ITEM if self.batch else "")


@dataclass(slots=True)
class Sums:
    """Total usage and cost of requests; costs in nano-dollars."""

    requests: int = 0
    lost: int = 0
    """Of these, requests whose frontend ended before them: only their prompts are known."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose KV was cached."""
    output_tokens: int = 0
    cost_nanodollars: int = 0
    unpriced: int = 0
    """Requests, except lost ones, whose model had no price."""
    charged_prompt_tokens: int = 0
    """Prompt tokens of requests with a first token, to which prices apply. The next two
    likewise."""
    charged_cached_tokens: int = 0
    charged_output_tokens: int = 0

    def add(self, record: UsageRecord) -> None:
        """Add a request."""
        prompt, cached = record.prompt_tokens, record.cached_tokens or 0
        output = record.output_tokens or 0
        self.requests += 1
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.output_tokens += output
        self.cost_nanodollars += record.cost_nanodollars or 0
        if record.outcome == LOST:
            self.lost += 1
            return
        if record.cost_nanodollars is None:
            self.unpriced += 1
        if record.first_token_seconds is not None:
            self.charged_prompt_tokens += prompt
            self.charged_cached_tokens += cached
            self.charged_output_tokens += output

    def merge(self, other: "Sums") -> None:
        """Add other requests."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SUMMED = tuple(one.name for one in fields(Sums))


class UsageGroup(NamedTuple):
    """Requests that began in one time bucket and have the same labels."""

    begin: int
    """Start of the bucket, in seconds since the Unix epoch."""
    labels: Labels
    sums: Sums


@dataclass(frozen=True, slots=True)
class Question:
    """Which records to sum, and how to group them.

    Buckets of time are aligned to the Unix epoch, as minutes, hours and days in UTC are; the first
    one begins and the last one ends with the range.
    """

    begin: int = 0
    """Include requests that began at this second of the Unix epoch or later …"""
    end: int = MAX_SECONDS
    """… and before this one."""
    width: int = 0
    """Seconds of a bucket; 0: one bucket for all."""
    by: tuple[Column, ...] = ()
    tenant: str | None = None
    """Include only its records; None: those of all tenants."""
    projects: tuple[str, ...] | None = None
    """Include only these projects, by ID; None: all. The next two likewise."""
    keys: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    """Include only these models and adapters; a request for an adapter does not match its model."""
    batch: bool | None = None
    line_items: tuple[str, ...] | None = None
    """Include only these, as in `Labels.line_item`."""

    def bucket_of(self, seconds: int) -> int:
        """Return the start of the bucket that contains a time of the range."""
        if not self.width:
            return self.begin
        return max(self.begin, seconds // self.width * self.width)

    def wants(self, record: UsageRecord) -> bool:
        """Return whether a record matches."""
        return (
            self.begin * 1000 <= record.began_ms < self.end * 1000
            and self.tenant in (None, record.tenant)
            and (self.projects is None or record.project in self.projects)
            and (self.keys is None or record.key in self.keys)
            and (self.names is None or (record.adapter or record.model) in self.names)
            and self.batch in (None, record.batch)
            and (self.line_items is None or _line_item(record) in self.line_items)
        )

    def answer(self, records: Iterable[UsageRecord]) -> list[UsageGroup]:
        """Return the groups of records, by time; records that do not match are skipped."""
        found: dict[tuple[int, Labels], Sums] = {}
        for record in records:
            if self.wants(record):
                at = self.bucket_of(record.began_ms // 1000)
                found.setdefault((at, self._labels(record)), Sums()).add(record)
        ordered = sorted(found.items(), key=lambda item: item[0][0])
        return [UsageGroup(at, labels, sums) for (at, labels), sums in ordered]

    def _labels(self, record: UsageRecord) -> Labels:
        values: dict[str, Any] = {
            name: getattr(record, name) for name in self.by if name != "priced"
        }
        if "priced" in self.by:
            values["priced"] = record.cost_nanodollars is not None
        return Labels(**values)


def _line_item(record: UsageRecord) -> str:
    return Labels(model=record.model, adapter=record.adapter, batch=record.batch).line_item
