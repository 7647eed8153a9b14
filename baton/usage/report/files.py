"""Usage records in the files that `JsonlSink` writes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from baton.usage.record import UsageRecord, decode
from baton.usage.report.question import Question
from baton.usage.sinks.jsonl import PATTERN


class RecordFiles:
    """The records of some files, without duplicates.

    Iterate over it. It keeps the ID of each record that it has seen: about 100 bytes.

    Args:
        files: in any order.
        question: selects records; None: all.
    """

    def __init__(self, files: Iterable[Path], question: Question | None = None) -> None:
        self._files = files
        self._wants = (question or Question()).wants
        self._seen: set[bytes] = set()
        self.doubles = 0
        """Duplicate records that were skipped."""
        self.damaged = 0
        """Invalid lines that were skipped: a crash leaves one at the end of a file."""

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
        if not self._wants(record):
            return None
        if ident in self._seen:
            self.doubles += 1
            return None
        self._seen.add(ident)
        return record


def files_of(path: Path) -> list[Path]:
    """Return the record files of a directory, or the given file."""
    return sorted(path.glob(PATTERN)) if path.is_dir() else [path]
