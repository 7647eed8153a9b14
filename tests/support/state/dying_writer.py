"""Writes files, or the output of a batch, and is killed at a point of its choice.

    python dying_writer.py URL DIRECTORY WHAT NUMBER POINT

WHAT is `upload`, `ending` or `sweep`; the process dies at its NUMBER-th object, `before` its bytes,
`within` them, or `after` them, when no row says that they are there.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from uuid import UUID

from baton.batches.store import BatchStore
from baton.conversations.records import StateScope
from baton.files.objects import FileObjects
from baton.files.records import FileDetails
from baton.files.store import FileStore
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from baton.settings import FileSettings
from services.frontend.generation.accounting.metering import Metering
from services.frontend.openai.batches.running.ending import BatchEnding
from tests.support.clock import DEADLINE_SECONDS
from tests.support.state.databases import state_settings

MIB = 1024 * 1024
STAGED_BYTES = 6 * MIB
"""After these, obstore has written a part."""
SCOPE = StateScope("acme", "proj_1")
LEASE_SECONDS = 600.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingObjects(FileObjects):
    """Objects of which one is the last that this process writes or deletes."""

    def __init__(self, url: str, number: int, point: str) -> None:
        super().__init__(url)
        self._left = number
        self._point = point

    async def write(self, file: UUID, pieces: AsyncIterator[bytes]) -> None:
        self._left -= 1
        last = not self._left
        if last and self._point == "before":
            die()
        await super().write(file, self._cut(pieces) if last else pieces)
        if last:
            die()

    async def delete(self, file: UUID) -> None:
        await super().delete(file)
        self._left -= 1
        if not self._left:
            die()

    async def _cut(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        count = 0
        async for piece in pieces:
            if self._point == "within" and count > STAGED_BYTES:
                die()
            count += len(piece)
            yield piece


async def _upload(files: FileStore) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(16):
            yield bytes([number]) * MIB

    await files.write(SCOPE, pieces(), lambda: FileDetails("batch", "in.jsonl"), 16 * MIB)


async def _end(database: Database, files: FileStore) -> None:
    store = BatchStore(database, "dying", LEASE_SECONDS)
    lease = await store.claim()
    assert lease is not None, "there is no batch to end"
    metering = Metering(None, lambda *_: None, "dying")
    await BatchEnding(store, files, metering).run(lease)


async def main(url: str, directory: str, what: str, number: str, point: str) -> None:
    settings = FileSettings(url=directory)
    objects = DyingObjects(directory, int(number), point)
    async with Database(state_settings(url), "batches", BATCHES) as database:
        await database.wait_available(DEADLINE_SECONDS)
        files = FileStore(database, objects, settings)
        if what == "upload":
            await _upload(files)
        elif what == "ending":
            await _end(database, files)
        else:
            await files.sweep()
    raise SystemExit(f"{what}: it was not killed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
