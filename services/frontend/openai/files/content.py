"""The bytes of a file as a response: all of them, or one range (RFC 9110, section 14)."""

import re
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from baton.errors import BatonError, Reason
from baton.files.records import StoredFile
from services.frontend.http.asgi import Scope, Send
from services.frontend.http.body import header
from services.frontend.http.responses import send_json

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


async def send_content(
    scope: Scope,
    send: Send,
    file: StoredFile,
    read: Callable[[StoredFile, int, int], AsyncIterator[bytes]],
) -> None:
    """Send a file's bytes.

    Its content is the client's: it is sent as something to keep, which no browser shows.

    Args:
        scope: the request.
        send: sends the response.
        file: what to send.
        read: yields its bytes from one to before another.
    """
    start, end, status = range_of(header(scope, b"range"), file.bytes)
    size = str(file.bytes)
    if status == 416:
        error = BatonError(Reason.OUT_OF_RANGE, f"range: the file has {size} bytes", field="range")
        await send_json(
            send, error.to_openai(), 416, ((b"content-range", f"bytes */{size}".encode()),)
        )
        return
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-disposition", f"attachment; filename*=UTF-8''{quote(file.name)}".encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"accept-ranges", b"bytes"),
        (b"content-length", str(end - start).encode()),
    ]
    if status == 206:
        headers.append((b"content-range", f"bytes {start}-{end - 1}/{size}".encode()))
    if scope["method"] == "HEAD" or start == end:
        await _begin(send, status, headers)
        await send({"type": "http.response.body", "body": b""})
        return
    begun, left = False, end - start
    async for piece in read(file, start, end):
        if not begun:
            await _begin(send, status, headers)
            begun = True
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


def range_of(asked: str, size: int) -> tuple[int, int, int]:
    """Return where a response begins and ends, and its status; several ranges are ignored.

    Args:
        asked: the header `range`; empty: none.
        size: of the whole.
    """
    found = _RANGE.fullmatch(asked.strip())
    if found is None or found.groups() == ("", ""):
        return 0, size, 200
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return 0, size, 200
    return (start, end, 206) if start < end else (0, 0, 416)


async def _begin(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
