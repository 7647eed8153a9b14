"""Forms with a file: read in pieces of any size, within bounds."""

from collections.abc import Sequence

import pytest

from baton.errors import BatonError, Reason
from services.frontend.openai.files.form import UploadForm, boundary_of, clean_name

BOUNDARY = b"XbX"
FIELDS = frozenset({"purpose", "expires_after[anchor]"})
MOST = 1000


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--XbX\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--XbX--\r\n"


async def read(body: bytes, step: int = 1 << 20) -> tuple[UploadForm, bytes]:
    pieces = [body[at : at + step] for at in range(0, len(body), step)]

    async def next_piece() -> bytes:
        return pieces.pop(0) if pieces else b""

    found = UploadForm(BOUNDARY, FIELDS, MOST)
    return found, b"".join([piece async for piece in found.pieces(next_piece)])


async def refused(body: bytes) -> BatonError:
    with pytest.raises(BatonError) as caught:
        await read(body)
    return caught.value


CONTENT = b"a\r\n--Xb\r\n--XbY-\x00\xff" * 3


@pytest.mark.parametrize("step", [1, 2, 7, 64, 4096])
@pytest.mark.parametrize("file_first", [False, True])
async def test_a_form_is_the_same_in_pieces_of_any_size(step: int, file_first: bool) -> None:
    parts = [part("purpose", b"batch"), part("file", CONTENT, "in.jsonl")]
    found, data = await read(form(*(reversed(parts) if file_first else parts)), step)
    assert data == CONTENT
    assert (found.filename, found.fields) == ("in.jsonl", {"purpose": "batch"})


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ([part("purpose", b"batch")], "file"),
        ([part("file", b"1", "a"), part("file", b"2", "b")], "file"),
        ([part("purpose", b"a"), part("purpose", b"b")], "purpose"),
        ([part("color", b"red")], "color"),
        ([part("purpose", b"x" * 600)], "purpose"),
        ([part("file", b"1", "")], "file"),
        ([part("file", b"1", "x" * 256)], "file"),
    ],
)
async def test_what_a_form_may_not_have_is_named(parts: Sequence[bytes], field: str) -> None:
    error = await refused(form(*parts))
    assert (error.reason, error.field) == (Reason.INVALID_FIELD, field)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        form(part("file", b"1", "a"))[:-10],
        b"--XbX\r\nno header\r\n\r\n",
        b"--XbX\r\n" + b"a: " + b"x" * 100_000,
        form(b"--XbX\r\na: b\r\n\r\n\r\n"),
    ],
)
async def test_what_is_no_form_is_refused(body: bytes) -> None:
    assert (await refused(body)).reason in (Reason.MALFORMED_BODY, Reason.INVALID_FIELD)


async def test_parts_and_bytes_are_bounded() -> None:
    many = [part(f"purpose{number}", b"") for number in range(10_000)]
    found = UploadForm(BOUNDARY, frozenset(f"purpose{number}" for number in range(10_000)), MOST)
    body = [form(*many)]

    async def next_piece() -> bytes:
        return body.pop() if body else b""

    with pytest.raises(BatonError, match="more than 16 parts"):
        [piece async for piece in found.pieces(next_piece)]
    _, data = await read(form(part("file", b"x" * MOST, "a")))
    assert len(data) == MOST
    error = await refused(form(part("file", b"x" * (MOST + 1), "a")))
    assert error.reason is Reason.BODY_TOO_LARGE and "files.max_file_bytes" in error.message


def test_a_boundary_is_needed() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"
    for kind in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'x' * 71}",
    ):
        with pytest.raises(BatonError) as caught:
            boundary_of(kind)
        assert caught.value.reason is Reason.MALFORMED_BODY
    for kind in ("", "application/json"):
        with pytest.raises(BatonError) as caught:
            boundary_of(kind)
        assert caught.value.reason is Reason.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (b"a.jsonl", "a.jsonl"),
        (b"../../etc/passwd", "passwd"),
        (b"C:\\temp\\a.jsonl", "a.jsonl"),
        (b"a\r\nb\x00.jsonl", "ab.jsonl"),
        ("<script>ü".encode(), "<script>ü"),
        (b"\xff", "\ufffd"),
    ],
)
def test_a_name_has_no_directory_and_prints(given: bytes, name: str) -> None:
    assert clean_name(given) == name


@pytest.mark.parametrize("given", [b"", b"../", b"\x00"])
def test_a_name_is_not_empty(given: bytes) -> None:
    with pytest.raises(BatonError, match="filename"):
        clean_name(given)
