"""Processes killed while they write files: a sweep leaves nothing of them, and nothing is lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from baton.batches.records import LineResult, LineState
from baton.files.objects import FileObjects
from baton.files.records import file_text
from baton.files.store import FileStore
from baton.postgres.database import Database
from baton.settings import FileSettings
from services.frontend.generation.accounting.metering import Metering
from services.frontend.openai.batches.running.ending import BatchEnding
from tests.integration.batches.test_line_store import Runner, database, lapse, started, status
from tests.support.processes.launcher import Launcher
from tests.support.state import dying_writer
from tests.support.state.databases import Databases
from tests.support.state.dying_writer import SCOPE

__all__ = ["database"]  # a fixture
POINTS = ("before", "within", "after")
LINES, FAILED = 600, 5
RESULT = "x" * 16_384
"""Of a line: an output has several of the parts that buckets take."""
AGE = "update files set touched_at = touched_at - interval '1 hour' where not ready"
COUNTS = """
select (select count(*) from files where ready) as ready,
    (select count(*) from files where not ready) as unfinished,
    (select count(*) from orphaned_objects) as orphans
"""


@dataclass
class Place:
    """A database, a directory, and processes that die there."""

    database: Database
    files: FileStore
    directory: Path
    launcher: Launcher
    url: str

    async def die(self, what: str, number: int, point: str) -> None:
        """Run a process that is killed."""
        words = [dying_writer.__file__, self.url, self.directory.as_uri(), what, str(number), point]
        code, _, errors = await self.launcher.run(words, dict(os.environ))
        assert code == -signal.SIGKILL, errors

    async def counts(self) -> tuple[int, int, int]:
        """Return how many files are ready, are not, and how many objects are to be deleted."""
        ((ready, unfinished, orphans),) = await self.database.fetch(COUNTS)
        return ready, unfinished, orphans

    def objects(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}


@pytest.fixture
async def place(
    database: Database, databases: Databases, launcher: Launcher, tmp_path: Path
) -> AsyncIterator[Place]:
    directory = tmp_path / "files"
    objects = FileObjects(directory.as_uri())
    files = FileStore(database, objects, FileSettings(url=directory.as_uri()))
    url = database._settings.url.get_secret_value()
    yield Place(database, files, directory, launcher, url)


async def test_a_sweep_leaves_nothing_of_uploads_whose_frontend_was_killed(place: Place) -> None:
    await asyncio.gather(*(place.die("upload", 1, point) for point in POINTS))
    assert await place.counts() == (0, 3, 0)
    assert await place.files.page(SCOPE, "", 9, None, descending=True) == []
    names = place.objects()  # one in parts, and one that is whole
    assert len(names) == 2 and sum("#" in name for name in names) == 1
    await place.files.sweep()
    assert place.objects() == names  # they may still be uploads
    await place.database.execute(AGE)
    await place.die("sweep", 1, "after")  # the object is deleted, and still named
    assert (await place.counts())[2] == 3
    assert await place.files.sweep() == 3
    assert (await place.counts(), place.objects()) == ((0, 0, 0), set())


async def test_an_output_is_whole_whoever_was_killed_while_it_wrote(place: Place) -> None:
    runner = Runner(place.database, "frontend-0")
    batch = await started(runner, LINES)
    lines = await runner.lines.claim(batch, LINES)
    results = [
        LineResult(line, LineState.ANSWERED, f"{line.number} {RESULT}") for line in lines[FAILED:]
    ]
    results += [LineResult(line, LineState.FAILED, str(line.number)) for line in lines[:FAILED]]
    await runner.lines.write(batch, results)
    killed = (1, "within"), (1, "after"), (2, "after")
    for number, point in killed:
        await place.die("ending", number, point)
        found = await status(runner)
        assert (found.status, found.output_file) == ("finalizing", None)
        await lapse(place.database, "batches")
    lease = await runner.batches.claim()
    assert lease is not None and lease.attempt == len(killed) + 2
    await BatchEnding(runner.batches, place.files, Metering(None, _ignore, "frontend-0")).run(lease)
    assert await place.counts() == (2, 4, 0)
    await place.database.execute(AGE)
    await place.files.sweep()
    found = await status(runner)
    assert found.status == "completed" and found.output_file and found.error_file
    assert place.objects() == {found.output_file.hex, found.error_file.hex}
    assert await place.counts() == (2, 0, 0)
    numbers = range(FAILED + 1, LINES + 1)
    assert await content(place, found.output_file) == [f"{number} {RESULT}" for number in numbers]
    failed = [str(number) for number in range(1, FAILED + 1)]
    assert await content(place, found.error_file) == failed


async def content(place: Place, ident: Any) -> list[str]:
    file = await place.files.get(SCOPE, file_text(ident))
    data = b"".join([piece async for piece in place.files.read(file, 0, file.bytes)])
    return data.decode().splitlines()


def _ignore(*_: object) -> None:
    """There are no usage records."""
