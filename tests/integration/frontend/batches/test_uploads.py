"""Files over HTTP: with openai-python at two frontends, and with clients that do it wrong."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from baton.postgres.database import Database
from baton.postgres.revisions import BATCHES
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

DATA = b"0123456789" * 50_000


async def test_a_file_is_the_same_at_all_frontends(frontends: Frontends, tmp_path: Path) -> None:
    import openai  # takes a second

    first, second = frontends.clients
    made = await first.files.create(file=("a/../in.jsonl", DATA, "text/html"), purpose="batch")
    expires = {"anchor": "created_at", "seconds": 3600}
    other = await first.files.create(file=("x", b"x"), purpose="user_data", expires_after=expires)
    assert (made.bytes, made.filename, made.purpose) == (len(DATA), "in.jsonl", "batch")
    assert made.expires_at is None and other.expires_at == other.created_at + 3600
    assert await second.files.retrieve(made.id) == made
    assert (await second.files.content(made.id)).content == DATA
    assert [file.id async for file in second.files.list()] == [other.id, made.id]
    assert [file.id async for file in second.files.list(limit=1, order="asc")] == [
        made.id,
        other.id,
    ]
    assert [file.id async for file in second.files.list(purpose="batch")] == [made.id]
    url = f"/v1/files/{made.id}/content"
    part = await frontends.http[1].get(url, headers={"range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, DATA[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(DATA)}"
    none = await frontends.http[1].get(url, headers={"range": "bytes=900000-"})
    assert none.status_code == 416 and none.headers["content-range"] == f"bytes */{len(DATA)}"
    head = await frontends.http[0].head(url)
    assert head.headers["content-length"] == str(len(DATA))
    # No browser shows it, whatever it was uploaded as.
    assert head.headers["content-type"] == "application/octet-stream"
    assert head.headers["x-content-type-options"] == "nosniff"
    assert head.headers["content-disposition"] == "attachment; filename*=UTF-8''in.jsonl"
    deleted = await second.files.delete(made.id)
    assert deleted.deleted and deleted.id == made.id
    for client in frontends.clients:
        with pytest.raises(openai.NotFoundError):
            await client.files.content(made.id)
    assert await eventually(lambda: objects(tmp_path) == [other.id.removeprefix("file_")])


def objects(directory: Path) -> list[str]:
    return [path.name for path in (directory / "files").iterdir()]


def form(*fields: str, boundary: str = "X", end: str = "--X--\r\n") -> bytes:
    """Return a form with a file and fields such as `purpose=batch`."""
    parts = ['form-data; name="file"; filename="a"\r\n\r\n1\r\n']
    for one in fields:
        name, _, value = one.partition("=")
        parts.append(f'form-data; name="{name}"\r\n\r\n{value}\r\n')
    body = "".join(f"--{boundary}\r\ncontent-disposition: {part}" for part in parts)
    return (body + end).encode()


FORM = "multipart/form-data; boundary=X"
HOUR = ("purpose=batch", "expires_after[anchor]=created_at")
BAD = [
    ("application/json", b"{}", 415, None),
    ("multipart/form-data", form("purpose=batch"), 400, None),
    (FORM, b"", 400, None),
    (FORM, form("purpose=batch", end=""), 400, None),
    (FORM, form(), 400, "purpose"),
    (FORM, form("purpose=<b>"), 400, "purpose"),
    (FORM, form("purpose=batch", "mode=x"), 400, "mode"),
    (FORM, form(*HOUR), 400, "expires_after.seconds"),
    (FORM, form(*HOUR, "expires_after[seconds]=3599"), 400, "expires_after.seconds"),
    (FORM, form(*HOUR, "expires_after[seconds]=-1"), 400, "expires_after.seconds"),
    (FORM, form("purpose=batch", "expires_after[seconds]=3600"), 400, "expires_after.anchor"),
    (FORM, form(*["purpose=batch"] * 10_000), 400, "purpose"),
    (FORM, form("purpose=batch") + b"\0" * 5_000_000, 413, None),
]


async def test_uploads_that_are_wrong_leave_nothing(frontends: Frontends, tmp_path: Path) -> None:
    http = frontends.http[0]
    for kind, body, status, param in BAD:
        answer = await http.post("/v1/files", content=body, headers={"content-type": kind})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (status, param), (error, body[:200])
        assert "<" not in error["message"]
    for path in ("", "/content"):
        for ident in (f"file_{7:032x}", "file-abc", "..%2f..", "batch_" + "0" * 32):
            assert (await http.get(f"/v1/files/{ident}{path}")).status_code == 404
    assert (await http.get("/v1/files")).json()["data"] == []
    assert await eventually(lambda: not objects(tmp_path))  # at the next sweep


@pytest.mark.parametrize("stop", ["closes", "lies"])
async def test_an_upload_that_breaks_off_leaves_nothing(
    frontends: Frontends, tmp_path: Path, stop: str
) -> None:
    address = urlsplit(str(frontends.http[0].base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = form(end="").removesuffix(b"1\r\n") + b"x" * 3_000_000
    length = len(body) + (1000 if stop == "closes" else -1000)
    head = f"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-type: {FORM}\r\n"
    writer.write(f"{head}content-length: {length}\r\n\r\n".encode() + body)
    await writer.drain()
    if stop == "closes":
        await eventually(lambda: objects(tmp_path))
        writer.close()
    else:
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    async with Database(state_settings(frontends.url), "batches", BATCHES) as database:
        await database.wait_available(20)

        async def empty() -> Any:
            return not await database.fetch("select from files")

        assert await eventually(empty)
    assert await eventually(lambda: not objects(tmp_path))
