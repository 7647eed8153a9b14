"""Writes a backup: complete and flushed under its name, or not there."""

import os
import tempfile
from pathlib import Path
from types import TracebackType

from baton.backup.layout import (
    CHUNK_BYTES,
    LENGTH_BYTES,
    BackupHeader,
    NamedValue,
    encode_chunk,
    encode_header,
)
from baton.backup.sealing import Seal
from baton.host.flush import flush_to_disk


class BackupWriter:
    """Writes one backup next to its name, and renames it when `finish` is called.

    Readable by its owner only. Leaving without `finish` removes it, and an earlier backup of that
    name stays as it was. Holds one chunk in memory.

    Args:
        path: name of the backup.
        passphrase: what it is sealed with.
        header: what it is of.

    Methods raise:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, passphrase: bytes, header: BackupHeader) -> None:
        self._path = path
        line = encode_header(header) + b"\n"
        self._seal = Seal(header.kdf.key(passphrase), line)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        self._file = os.fdopen(handle, "wb")
        self._unfinished = Path(name)
        self._number = 0
        self._records: list[NamedValue] = []
        self._bytes = 0
        try:
            self._file.write(line + self._seal.close(0, b""))
        except BaseException:
            self._discard()
            raise

    def __enter__(self) -> "BackupWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._discard()

    def add(self, name: str, value: bytes) -> None:
        """Add a record."""
        self._records.append((name, value))
        self._bytes += len(value)
        if self._bytes >= CHUNK_BYTES:
            self._close_chunk()

    def finish(self) -> int:
        """Flush the backup to disk and give it its name; return its size in bytes."""
        self._close_chunk(last=True)
        self._file.flush()
        size = self._file.tell()
        os.fsync(self._file.fileno())
        self._file.close()
        self._unfinished.replace(self._path)
        flush_to_disk(self._path.parent)
        return size

    def _close_chunk(self, *, last: bool = False) -> None:
        self._number += 1
        sealed = self._seal.close(self._number, encode_chunk(self._records), last=last)
        self._file.write(len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed)
        self._records, self._bytes = [], 0

    def _discard(self) -> None:
        self._file.close()
        self._unfinished.unlink(missing_ok=True)
