"""Files in a real Postgres and a directory: a row and its bytes come and go together."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from baton.conversations.forgetting import forget_tenant
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.files.objects import FileObjects
from baton.files.records import FileDetails, StoredFile
from baton.files.store import FileStore
from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from baton.settings import FileSettings
from tests.support.state.databases import Databases, state_settings

OURS, OTHERS = StateScope("acme", "proj_1"), StateScope("acme", "proj_2")
DETAILS = FileDetails("batch", "in.jsonl")
DATA = b"0123456789" * 300_000


class Files:
    """A store, its database and its directory."""

    def __init__(self, database: Database, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.database = database
        settings = FileSettings(url=directory.as_uri(), max_tenant_bytes=5_000_000)
        self.store = FileStore(database, FileObjects(settings.url), settings)

    @property
    def objects(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    async def rows(self) -> int:
        return int((await self.database.fetch("select count(*) from files"))[0][0])

    async def write(self, data: bytes = DATA, details: FileDetails = DETAILS) -> StoredFile:
        return await self.store.write(OURS, pieces(data), lambda: details, len(data))

    async def read(self, file: StoredFile, start: int, end: int) -> bytes:
        return b"".join([piece async for piece in self.store.read(file, start, end)])


@pytest.fixture
async def files(databases: Databases, tmp_path: Path) -> AsyncIterator[Files]:
    url = await databases.migrated()
    async with Database(state_settings(url), "batches", BATCHES) as database:
        await database.wait_available(20)
        yield Files(database, tmp_path / "a directory", url)


async def pieces(data: bytes, step: int = 65_536) -> AsyncIterator[bytes]:
    for at in range(0, len(data), step):
        yield data[at : at + step]


async def test_what_was_written_is_read(files: Files) -> None:
    file = await files.write()
    assert (file.bytes, file.name, file.purpose) == (len(DATA), "in.jsonl", "batch")
    assert await files.store.get(OURS, file.text) == file
    assert await files.read(file, 0, file.bytes) == DATA
    assert await files.read(file, 5, 9) == DATA[5:9]
    (row,) = await files.database.fetch("select sha256 from files")
    assert row["sha256"] == hashlib.sha256(DATA).digest()
    empty = await files.write(b"")
    assert await files.read(empty, 0, 0) == b""
    with pytest.raises(BatonError) as caught:
        await files.store.get(OTHERS, file.text)
    assert caught.value.reason is Reason.NOT_FOUND


async def test_a_list_has_pages(files: Files) -> None:
    made = [await files.write(b"x", FileDetails(purpose, "n")) for purpose in ("batch", "evals")]
    page = files.store.page
    assert await page(OURS, "", 9, None, descending=True) == made[::-1]
    assert await page(OURS, "", 9, made[0].id, descending=False) == made[1:]
    assert await page(OURS, "evals", 9, None, descending=False) == made[1:]
    assert await page(OTHERS, "", 9, None, descending=False) == []


@pytest.mark.parametrize("end", ["fails", "cancelled", "details"])
async def test_an_upload_that_breaks_off_leaves_nothing(files: Files, end: str) -> None:
    begun = asyncio.Event()

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 4_000_000
        begun.set()
        if end == "cancelled":
            await asyncio.Event().wait()
        if end == "fails":
            raise ConnectionResetError("gone")

    def details() -> FileDetails:
        raise BatonError(Reason.INVALID_FIELD, "no purpose")

    task = asyncio.create_task(files.store.write(OURS, broken(), details, 4_000_000))
    await begun.wait()
    if end == "cancelled":
        task.cancel()
    with pytest.raises((ConnectionResetError, BatonError, asyncio.CancelledError)):
        await task
    assert await files.rows() == 0
    await files.store.sweep()
    assert files.objects == []
    await files.write()  # its bytes do not count


async def test_a_tenants_bytes_are_limited_while_they_come(files: Files) -> None:
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await go.wait()
        yield DATA

    first = asyncio.create_task(files.store.write(OURS, slow(), lambda: DETAILS, len(DATA)))
    while not await files.rows():
        await asyncio.sleep(0.01)
    with pytest.raises(BatonError, match=r"files\.max_tenant_bytes") as caught:
        await files.write()
    assert caught.value.reason is Reason.RATE_LIMITED
    go.set()
    await first
    await files.write(b"x" * 2_000_000)


async def test_bytes_go_with_their_row(files: Files) -> None:
    kept, deleted = await files.write(b"kept"), await files.write(b"deleted")
    await files.store.delete(OURS, deleted.text)
    with pytest.raises(BatonError):
        await files.store.delete(OURS, deleted.text)
    assert await files.store.sweep() == 1 and files.objects == [kept.id.hex]
    await files.database.execute("update files set expires_at = now() - interval '1 second'")
    with pytest.raises(BatonError):
        await files.store.get(OURS, kept.text)
    assert await files.store.sweep() == 1 and files.objects == []
    await files.write()
    await forget_tenant(state_settings(files.url), OURS.tenant)
    assert await files.store.sweep() == 1 and files.objects == []


async def test_what_a_killed_process_left_is_swept(files: Files) -> None:
    left = UUID(int=7)
    await files.database.execute(
        "insert into files (tenant, project, id, purpose, name, bytes, touched_at) "
        "values ('acme', '', $1, '', '', 1, now() - interval '1 day')",
        left,
    )
    (files.directory / f"{left.hex}#1").write_bytes(b"half")
    assert await files.store.sweep() == 1
    assert files.objects == [] and await files.rows() == 0


async def test_a_directory_that_is_gone_is_unavailable(files: Files) -> None:
    file = await files.write()
    (files.directory / file.id.hex).unlink()
    with pytest.raises(BatonError) as caught:
        await files.read(file, 0, file.bytes)
    assert caught.value.reason is Reason.NOT_FOUND
    files.directory.rmdir()
    files.directory.write_text("a file")
    with pytest.raises(BatonError) as caught:
        await files.write(b"x")
    assert caught.value.reason is Reason.UNAVAILABLE
