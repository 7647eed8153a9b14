"""Reads a backup, and tells what is wrong with one that is not whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from baton.backup.errors import BackupError, PassphraseError
from baton.backup.layout import (
    FORMAT,
    LAYOUT,
    LENGTH_BYTES,
    MAX_CHUNK_BYTES,
    MAX_HEADER_BYTES,
    BackupHeader,
    HeaderLayout,
    NamedValue,
    decode_chunk,
)
from baton.backup.sealing import TAG_BYTES, Seal

_BEGINNING = b'{"format":"' + FORMAT.encode() + b'"'


class Backup:
    """A backup on disk. Holds one chunk in memory.

    Args:
        path: the file.

    Raises:
        BackupError: it cannot be read, is not a backup, is of a newer layout, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._line = file.readline(MAX_HEADER_BYTES)
        except OSError as error:
            raise _unreadable(path, error) from error
        if not self._line.startswith(_BEGINNING):
            whole = len(self._line) >= len(_BEGINNING) or not _BEGINNING.startswith(self._line)
            if whole or not self._line:
                raise BackupError(f"{path} is not a backup: `baton backup` writes them")
            raise self._cut(len(self._line))
        if not self._line.endswith(b"\n"):
            raise self._cut(len(self._line))
        self.header = self._header()

    def batches(self, passphrase: bytes) -> Iterator[list[NamedValue]]:
        """Yield all records, in the order of their names within each prefix.

        Raises:
            PassphraseError: the passphrase is another one.
            BackupError: it cannot be read, is cut short, or is damaged.
        """
        try:
            with self._path.open("rb") as file:
                yield from self._read(file, passphrase)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def verify(self, passphrase: bytes) -> None:
        """Read all of it.

        Raises:
            BackupError: as `batches`, or its records are not those of its header.
        """
        counts = dict.fromkeys(self.header.counts, 0)
        for records in self.batches(passphrase):
            for name, _ in records:
                prefix = name.partition("/")[0]
                counts[prefix] = counts.get(prefix, 0) + 1
        if counts != self.header.counts:
            raise BackupError(f"{self._path} has other records than its header says")

    def _read(self, file: BinaryIO, passphrase: bytes) -> Iterator[list[NamedValue]]:
        file.seek(len(self._line))
        try:
            seal = Seal(self.header.kdf.key(passphrase), self._line)
        except ValueError as error:
            raise BackupError(f"{self._path} is damaged: {error}") from error
        if seal.open(0, self._take(file, TAG_BYTES)) is None:
            raise PassphraseError(
                f"The passphrase does not open {self._path}, a backup of cluster "
                f"{self.header.cluster!r}: use the one that it was made with"
            )
        number, last = 0, False
        while not last:
            number += 1
            at = file.tell()
            length = int.from_bytes(self._take(file, LENGTH_BYTES), "big")
            if not TAG_BYTES <= length <= MAX_CHUNK_BYTES:
                raise self._damaged(at)
            sealed = self._take(file, length)
            plain = seal.open(number, sealed)
            if plain is None:
                plain, last = seal.open(number, sealed, last=True), True
            if plain is None:
                raise self._damaged(at)
            try:
                yield decode_chunk(plain)
            except msgspec.DecodeError as error:
                raise self._damaged(at) from error
        if file.read(1):
            raise BackupError(f"{self._path} goes on after its end, at byte {file.tell() - 1}")

    def _take(self, file: BinaryIO, count: int) -> bytes:
        data = file.read(count)
        if len(data) < count:
            raise self._cut(file.tell())
        return data

    def _header(self) -> BackupHeader:
        try:
            layout = msgspec.json.decode(self._line, type=HeaderLayout)
            if layout.layout > LAYOUT:
                raise BackupError(
                    f"{self._path} has layout {layout.layout}, and this release reads layouts up "
                    f"to {LAYOUT}: use release {layout.release}, which wrote it, or a later one"
                )
            return msgspec.json.decode(self._line, type=BackupHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BackupError(f"{self._path} is damaged: its header cannot be read") from error

    def _cut(self, size: int) -> BackupError:
        return BackupError(
            f"{self._path} is cut short: it ends after {size} bytes, before its last record"
        )

    def _damaged(self, at: int) -> BackupError:
        return BackupError(f"{self._path} is damaged after byte {at}: use another copy")


def _unreadable(path: Path, error: OSError) -> BackupError:
    return BackupError(f"{path} cannot be read: {error.strerror}")
