"""Sums of usage records by team and day, from the files that `JsonlSink` writes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from baton.prices import PriceTable
from baton.usage.record import LOST, UsageRecord, decode
from baton.usage.sinks.jsonl import PATTERN

_EPOCH = date(1970, 1, 1)
_DAY_MS = 86_400_000


class Team(NamedTuple):
    """What is summed up together: a project on a day."""

    day: date
    """In UTC, when requests began."""
    tenant: str
    project: str
    """Its id; empty where nobody has a key."""


@dataclass
class Totals:
    """What requests used and cost together."""

    requests: int = 0
    lost: int = 0
    """Of them, those that their frontend did not outlive: only their prompts are known."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_nanodollars: int = 0
    unpriced: int = 0
    """Requests whose model had no price."""
    provider_nanodollars: int = 0
    """What the same tokens cost at a provider's prices."""
    provider_unpriced: int = 0
    """Requests whose model has no price there."""

    def add(self, record: UsageRecord, provider: PriceTable) -> None:
        """Add a request."""
        prompt, cached = record.prompt_tokens, record.cached_tokens or 0
        output = record.output_tokens or 0
        self.requests += 1
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.output_tokens += output
        if record.outcome == LOST:
            self.lost += 1
            return
        if record.cost_nanodollars is None:
            self.unpriced += 1
        else:
            self.cost_nanodollars += record.cost_nanodollars
        price = provider.find(record.model, record.adapter, record.tier, batch=record.batch)
        if price is None:
            self.provider_unpriced += 1
        elif record.first_token_seconds is not None:
            self.provider_nanodollars += price.cost(prompt, cached, output)


class RecordFiles:
    """The records of some files, each once, whatever process wrote it how often.

    Iterate over it. It keeps the id of each record that it has seen: about 100 bytes.

    Args:
        files: in any order.
        since: the first day of records that are wanted; None: the beginning.
        until: the last one, included; None: the end.
    """

    def __init__(
        self, files: Iterable[Path], since: date | None = None, until: date | None = None
    ) -> None:
        self._files = files
        self._first_ms = 0 if since is None else _ms(since)
        self._end_ms = None if until is None else _ms(until + timedelta(days=1))
        self._seen: set[bytes] = set()
        self.doubles = 0
        """Copies that were passed over."""
        self.damaged = 0
        """Lines that are no record, likewise: a crash leaves one at the end of a file."""

    def __iter__(self) -> Iterator[UsageRecord]:
        for path in self._files:
            with path.open("rb") as lines:
                for line in lines:
                    record = self._record(line)
                    if record is not None:
                        yield record

    def _record(self, line: bytes) -> UsageRecord | None:
        try:
            record = decode(line)
            ident = bytes.fromhex(record.id.replace("-", ""))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            self.damaged += 1
            return None
        began = record.began_ms
        if began < self._first_ms or (self._end_ms is not None and began >= self._end_ms):
            return None
        if ident in self._seen:
            self.doubles += 1
            return None
        self._seen.add(ident)
        return record


def files_of(path: Path) -> list[Path]:
    """Return the record files of a directory, or the one file that is named."""
    return sorted(path.glob(PATTERN)) if path.is_dir() else [path]


def summarize(records: Iterable[UsageRecord], provider: PriceTable) -> dict[Team, Totals]:
    """Return the totals of each project and day, in the order of days, tenants and projects.

    Args:
        records: each once.
        provider: prices to compare with.
    """
    teams: dict[Team, Totals] = {}
    for record in records:
        day = _EPOCH + timedelta(days=record.began_ms // _DAY_MS)
        team = Team(day, record.tenant, record.project)
        teams.setdefault(team, Totals()).add(record, provider)
    return dict(sorted(teams.items()))


def _ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
