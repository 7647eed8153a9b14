"""Writes records in the background of the router's loop, within a limit of bytes.

A recording is useful only up to the first missing record: a failed write ends it, and the router
continues without it.
"""

import asyncio
from pathlib import Path

import msgspec

from baton.telemetry.logs import get_logger
from services.router.recording.files import encode, part
from services.router.recording.records import Record

log = get_logger(__name__)

FLUSH_SECONDS = 0.2
MAX_PENDING_BYTES = 64 * 1024 * 1024
"""Most bytes waiting to be written: a slower disk ends the recording."""
PART_BYTES = 64 * 1024 * 1024


class Recorder:
    """Takes records on the loop, and writes them on a thread of the loop's pool.

    Args:
        directory: of the recording; created here, and must not exist yet.
        max_bytes: of all parts; beyond that the recording ends.
        part_bytes: of a part, after which the next one begins.
    """

    def __init__(self, directory: Path, max_bytes: int, part_bytes: int = PART_BYTES) -> None:
        directory.mkdir(mode=0o700, parents=True)
        self._directory = directory
        self._max_bytes = max_bytes
        self._part_bytes = part_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._pending = bytearray()
        self._taken = 0
        self._part = 1
        self._part_length = 0
        self._ended = False

    def write(self, record: Record) -> None:
        """Record something; no effect once the recording has ended."""
        if self._ended:
            return
        data = encode(record, self._encoder)
        if self._taken + len(data) > self._max_bytes:
            self._end("the recording reached recording.max_bytes")
        elif len(self._pending) + len(data) > MAX_PENDING_BYTES:
            self._end("the disk is too slow")
        else:
            self._taken += len(data)
            self._pending += data

    async def run(self) -> None:
        """Write pending records repeatedly until cancelled, then the remaining ones."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                writing = asyncio.create_task(asyncio.to_thread(self._append, self._take()))
                try:
                    await asyncio.shield(writing)
                finally:
                    # Also when this is cancelled: later writes come after it.
                    self._check(await writing)
        finally:
            self.flush()

    def flush(self) -> None:
        """Write pending records synchronously."""
        self._check(self._append(self._take()))

    def _take(self) -> bytearray:
        data, self._pending = self._pending, bytearray()
        return data

    def _append(self, data: bytearray) -> OSError | None:
        """Append to the last part, or begin the next one; return the error if that failed."""
        if not data:
            return None
        if self._part_length >= self._part_bytes:
            self._part, self._part_length = self._part + 1, 0
        try:
            with part(self._directory, self._part).open("ab") as file:
                file.write(data)
        except OSError as error:
            return error
        self._part_length += len(data)
        return None

    def _check(self, error: OSError | None) -> None:
        if error is not None:
            self._pending.clear()
            self._end(f"{error.filename}: {error.strerror}")

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        log.warning("router.recording.ended", reason=reason, bytes=self._taken)
