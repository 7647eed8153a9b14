"""Handlers of `/v1/batches`."""

import time
from collections.abc import Callable

import msgspec

from baton.batches.records import NewBatch, parse_batch
from baton.batches.store import BatchStore
from baton.conversations.ids import draw_block
from baton.errors import invalid_field
from baton.files.store import FileStore
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.pages import page
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.batches.bodies import batch_object, read_batch
from services.frontend.openai.body import read_body
from services.frontend.openai.files.handlers import no_files
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

BATCH_PURPOSE = "batch"


class BatchHandlers:
    """Serve batches. One object per frontend, on the loop's thread.

    Args:
        store: None: there are none.
        files: with their input.
        created: called when there is something to do.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self,
        store: BatchStore | None,
        files: FileStore | None,
        created: Callable[[], None],
        settings: HttpSettings,
        limits: FrontendLimits,
    ) -> None:
        self._store = store
        self._files = files
        self._created = created
        self._settings = settings
        self._limits = limits

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a batch of the requests in a file."""
        store, files = self._asked(), self._files
        assert files is not None
        principal = record.current().principal
        principal.require(KeyScope.INFERENCE)
        principal.require(KeyScope.STATE_READ)
        who = scope_of(principal)
        body = read_batch(await read_body(scope, receive, self._settings, self._limits))
        file = await files.get(who, body.input_file_id)
        if file.purpose != BATCH_PURPOSE:
            raise invalid_field(
                "input_file_id", f"the file's purpose is {file.purpose!r}, not {BATCH_PURPOSE!r}"
            )
        batch = await store.create(
            NewBatch(
                who,
                draw_block(int(time.time() * 1000)),
                principal.key.id,
                body.endpoint,
                file.id,
                body.completion_window,
                body.window_seconds,
                body.output_seconds,
                msgspec.json.encode(body.metadata or {}).decode(),
            )
        )
        self._created()
        await send_json(send, batch_object(batch))

    async def list_batches(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the batches of the project, newest first."""
        store, who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], ("after", "limit"))
        limit, after = query.limit(), query.text("after")
        last = parse_batch(after) if after else None
        if after and last is None:
            raise invalid_field("after", f"{after[:64]!r} is not the id of a batch")
        found = await store.recent(who, limit + 1, last)
        shown = found[:limit]
        ids = [one.text for one in shown]
        bodies = [batch_object(one) for one in shown]
        await send_json(send, page(bodies, ids, has_more=len(found) > limit))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Describe a batch."""
        (ident,) = scope["path_params"]
        found = await self._asked().get(scope_of(record.current().principal), ident)
        await send_json(send, batch_object(found))

    async def cancel(self, scope: Scope, _: Receive, send: Send) -> None:
        """Cancel a batch: its lines that have ended are written out."""
        (ident,) = scope["path_params"]
        found = await self._asked().cancel(scope_of(record.current().principal), ident)
        self._created()
        await send_json(send, batch_object(found))

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        name, all_, one = "batches", "/v1/batches", "/v1/batches/{batch_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("POST", all_, name, self.create, write),
            Route("GET", all_, name, self.list_batches, read),
            Route("GET", one, name, self.retrieve, read),
            Route("POST", f"{one}/cancel", name, self.cancel, write),
        ]

    def _asked(self) -> BatchStore:
        if self._store is None:
            raise no_files("batches")
        return self._store
