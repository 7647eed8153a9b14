"""Recordings in files: each record is a 4-byte little-endian length and as much MessagePack.

A recording is a directory of parts, `000001.records` and so on; the next one begins once a part is
long enough. Part 1 begins with `Opened`. An incomplete last record of the last part was never
fully written: the process was killed.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from services.router.recording.records import FORMAT, Opened, Record

SUFFIX = ".records"
_LENGTH = struct.Struct("<I")
_MAX_RECORD_BYTES = 256 * 1024 * 1024


class RecordingError(Exception):
    """A recording cannot be read; the text is a sentence that says why."""


def encode(record: Record, encoder: msgspec.msgpack.Encoder) -> bytes:
    """Return a record as stored in a file."""
    body = encoder.encode(record)
    return _LENGTH.pack(len(body)) + body


def part(directory: Path, number: int) -> Path:
    """Return the path of a part, the first of which is 1."""
    return directory / f"{number:06}{SUFFIX}"


def read(directory: Path) -> Iterator[Record]:
    """Yield the records of a recording, the first of which is `Opened`.

    Raises:
        RecordingError: a file cannot be read, or is no recording of this format.
    """
    decoder = msgspec.msgpack.Decoder(Record)
    parts = sorted(directory.glob(f"*{SUFFIX}"))
    if not parts:
        raise RecordingError(f"{directory} has no recording: no file name ends with {SUFFIX}.")
    first = True
    for number, path in enumerate(parts, 1):
        if path != part(directory, number):
            raise RecordingError(
                f"{part(directory, number)} is missing: it is part of {path.name}."
            )
        try:
            with path.open("rb") as file:
                for record in _records(file, path, decoder, last=number == len(parts)):
                    if first and (not isinstance(record, Opened) or record.format != FORMAT):
                        raise RecordingError(f"{path} is not a recording of format {FORMAT}.")
                    first = False
                    yield record
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror}.") from error


def _records(
    file: BinaryIO, path: Path, decoder: "msgspec.msgpack.Decoder[Record]", *, last: bool
) -> Iterator[Record]:
    while head := file.read(_LENGTH.size):
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        body = file.read(length) if 0 < length <= _MAX_RECORD_BYTES else b""
        if len(body) < length or not length:
            if last and not file.read(1):
                return
            raise RecordingError(f"{path} is damaged before byte {file.tell()}.")
        try:
            yield decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise RecordingError(f"{path}, before byte {file.tell()}: {error}.") from error
