"""Handlers of `/v1/files`."""

import asyncio
from typing import Any

from baton.errors import BatonError, Reason, invalid_field
from baton.files.records import FileDetails, StoredFile, parse_file
from baton.files.store import FileStore, seconds_of
from baton.rpc.timing.loop_watch import timeout
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.body import ClientGoneError, header
from services.frontend.http.pages import page
from services.frontend.http.protocol.connection import Wire, connection_of
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.files.content import send_content
from services.frontend.openai.files.form import UploadForm, boundary_of, too_long
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

PURPOSES = "batch", "user_data", "assistants", "fine-tune", "vision", "evals"
BATCH_OUTPUT = "batch_output"
"""Of files that batches write."""
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_FIELDS = frozenset({"purpose", _ANCHOR, _SECONDS})
_LEAST_SECONDS, _MOST_SECONDS = 3600, 30 * 24 * 3600
_FORM_BYTES = 64 * 1024
"""Of a form besides its file."""
_MAX_LIMIT = 10_000
_RETRY_SECONDS = 1.0


class FileHandlers:
    """Serve files. One object per frontend, on the loop's thread.

    Args:
        store: None: there are none.
    """

    def __init__(self, store: FileStore | None) -> None:
        self._store = store
        self._places = asyncio.Semaphore(store.settings.max_uploads) if store else None

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store a file: a form with `file`, `purpose` and perhaps `expires_after`."""
        store = self._asked()
        assert self._places is not None
        boundary = boundary_of(header(scope, b"content-type"))
        most = store.settings.max_file_bytes
        announced = header(scope, b"content-length")
        if announced.isdecimal():
            if int(announced) > most + _FORM_BYTES:
                raise too_long(most)
            most = min(most, int(announced))
        if self._places.locked():
            raise BatonError(
                Reason.OVERLOADED,
                f"{store.settings.max_uploads} files are already being uploaded to this frontend "
                "(files.max_uploads): retry later",
                retry_after=_RETRY_SECONDS,
            )
        form = UploadForm(boundary, _FIELDS, most)
        seconds, wire = store.settings.upload_seconds, connection_of(scope)
        async with self._places:
            wire.stream_body(seconds)
            who = scope_of(record.current().principal)
            try:
                async with timeout(seconds):
                    pieces = form.pieces(_BodyPieces(receive, wire).next)
                    file = await store.write(who, pieces, lambda: _details(form), most)
            except TimeoutError:
                raise BatonError(
                    Reason.BODY_TIMEOUT,
                    f"the file did not arrive within {seconds:g} s (files.upload_seconds)",
                ) from None
        await send_json(send, file_object(file))

    async def list_files(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the files of the project, newest first."""
        store, who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], ("after", "limit", "order", "purpose"))
        limit = query.whole("limit", 1, _MAX_LIMIT, _MAX_LIMIT)
        after = query.text("after")
        last = parse_file(after) if after else None
        if after and last is None:
            raise invalid_field("after", f"{after[:64]!r} is not the id of a file")
        descending = query.one_of("order", ("desc", "asc")) == "desc"
        purpose = query.text("purpose")
        found = await store.page(who, purpose, limit + 1, last, descending=descending)
        shown = [file_object(file) for file in found[:limit]]
        ids = [file["id"] for file in shown]
        await send_json(send, page(shown, ids, has_more=len(found) > limit))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Describe a file."""
        await send_json(send, file_object(await self._file(scope)))

    async def content(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return the bytes of a file, or a range of them."""
        await send_content(scope, send, await self._file(scope), self._asked().read)

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a file."""
        (ident,) = scope["path_params"]
        await self._asked().delete(scope_of(record.current().principal), ident)
        await send_json(send, {"id": ident, "object": "file", "deleted": True})

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        name, all_, one = "files", "/v1/files", "/v1/files/{file_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("POST", all_, name, self.create, write),
            Route("GET", all_, name, self.list_files, read),
            Route("GET", one, name, self.retrieve, read),
            Route("DELETE", one, name, self.delete, write),
            Route("GET", f"{one}/content", name, self.content, read),
        ]

    async def _file(self, scope: Scope) -> StoredFile:
        (ident,) = scope["path_params"]
        return await self._asked().get(scope_of(record.current().principal), ident)

    def _asked(self) -> FileStore:
        if self._store is None:
            raise no_files("files")
        return self._store


def file_object(file: StoredFile) -> dict[str, Any]:
    """Return a file in OpenAI's form."""
    return {
        "id": file.text,
        "object": "file",
        "bytes": file.bytes,
        "created_at": seconds_of(file.created_at),
        "expires_at": seconds_of(file.expires_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def no_files(what: str) -> BatonError:
    """Return UNIMPLEMENTED: there is no place for files; `what` is asked for."""
    return BatonError(
        Reason.UNIMPLEMENTED,
        f"this cluster has no {what}: set files.url (BATON_FILES_URL) and state.url of the "
        "frontends",
    )


def expiry_of(anchor: object, seconds: object, field: str) -> int:
    """Return the seconds after which something expires.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if anchor != "created_at":
        raise invalid_field(f"{field}.anchor", "must be created_at")
    text = str(seconds)
    whole = isinstance(seconds, int | str) and text.isascii() and text.isdecimal()
    if not whole or not _LEAST_SECONDS <= int(text) <= _MOST_SECONDS:
        limits = f"from {_LEAST_SECONDS} to {_MOST_SECONDS}"
        raise invalid_field(f"{field}.seconds", f"must be a whole number {limits}")
    return int(text)


def _details(form: UploadForm) -> FileDetails:
    """Return what a form says of its file.

    Raises:
        BatonError: INVALID_FIELD.
    """
    fields, expires = form.fields, None
    purpose = fields.get("purpose")
    if purpose not in PURPOSES:
        raise invalid_field("purpose", f"must be one of {', '.join(PURPOSES)}")
    if _ANCHOR in fields or _SECONDS in fields:
        expires = expiry_of(fields.get(_ANCHOR), fields.get(_SECONDS, ""), "expires_after")
    return FileDetails(purpose, form.filename or "", expires)


class _BodyPieces:
    """The body of a request, piece by piece."""

    def __init__(self, receive: Receive, wire: Wire) -> None:
        self._receive = receive
        self._wire = wire
        self._more = True

    async def next(self) -> bytes:
        """Return the next bytes; none: it is complete.

        Raises:
            BatonError: the rest of it will not arrive.
            ClientGoneError: the client disconnected.
        """
        while self._more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            self._more = message.get("more_body", False)
            if self._more and self._wire.refusal is not None:
                raise self._wire.refusal
            if data := message.get("body", b""):
                return bytes(data)
        return b""
