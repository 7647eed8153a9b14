"""Handlers of `/v1/batches` and `/v1/batch`."""

import time
from typing import Any

import msgspec

from baton.batches.records import NewBatch, StoredBatch, parse_batch
from baton.conversations.ids import draw_block
from baton.conversations.records import StateScope
from baton.errors import invalid_field
from baton.files.records import FileDetails, StoredFile
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from baton.webhooks.opening import Webhooks
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.pages import page
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.batches.bodies import CreateBatch, batch_object, read_batch
from services.frontend.openai.batches.opening import Batches
from services.frontend.openai.batches.requests import FILE_NAME, read_requests
from services.frontend.openai.body import read_body
from services.frontend.openai.files.handlers import no_files
from services.frontend.openai.responses.storing import scope_of
from services.frontend.requests import record

BATCH_PURPOSE = "batch"


class BatchHandlers:
    """Serve batches. One object per frontend, on the loop's thread.

    Args:
        batches: of this frontend; None: there are none.
        webhooks: for callbacks; None: there are none.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self,
        batches: Batches | None,
        webhooks: Webhooks | None,
        settings: HttpSettings,
        limits: FrontendLimits,
    ) -> None:
        self._batches = batches
        self._webhooks = webhooks
        self._settings = settings
        self._limits = limits

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a batch of the requests in a file."""
        batches = self._asked()
        who = _creator()
        body = read_batch(
            await read_body(scope, receive, self._settings, self._limits), batches.settings.windows
        )
        file = await batches.files.get(who, body.input_file_id)
        if file.purpose != BATCH_PURPOSE:
            raise invalid_field(
                "input_file_id", f"the file's purpose is {file.purpose!r}, not {BATCH_PURPOSE!r}"
            )
        batch = await self._create(batches, who, file, body)
        await send_json(send, batch_object(batch, None))

    async def create_of_requests(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a batch of the requests in the body, and say when it will be complete."""
        batches = self._asked()
        who = _creator()
        data = await read_body(scope, receive, self._settings, self._limits)
        webhooks = self._webhooks
        networks = None if webhooks is None else webhooks.networks
        own = batches.settings
        body = read_requests(data, own.max_lines, own.windows, networks)
        details = FileDetails(BATCH_PURPOSE, FILE_NAME)
        most = batches.files.settings.max_file_bytes
        file = await batches.files.write(who, body.lines(), lambda: details, most)
        batch = await self._create(batches, who, file, body.batch_of(file.text), body.callback_url)
        weight, lines = record.current().principal.tenant.weight or 1, len(body.requests)
        estimated = batches.estimates.completion_of_new(who.tenant, weight, lines)
        answer = {"batch_id": batch.text, **batch_object(batch, estimated)}
        if body.callback_url and webhooks is not None:
            answer["signing_secret"] = await webhooks.secrets.of_project(*who)
        await send_json(send, answer)

    async def _create(
        self,
        batches: Batches,
        who: StateScope,
        file: StoredFile,
        body: CreateBatch,
        callback_url: str = "",
    ) -> StoredBatch:
        batch = await batches.store.create(
            NewBatch(
                who,
                draw_block(int(time.time() * 1000)),
                record.current().principal.key.id,
                body.endpoint,
                file.id,
                body.completion_window,
                batches.settings.windows[body.completion_window],
                body.output_seconds,
                msgspec.json.encode(body.metadata or {}).decode(),
                callback_url,
            )
        )
        batches.wake()
        return batch

    async def list_batches(self, scope: Scope, _: Receive, send: Send) -> None:
        """List the batches of the project, newest first."""
        batches, who = self._asked(), scope_of(record.current().principal)
        query = QueryString(scope["query_string"], ("after", "limit"))
        limit, after = query.limit(), query.text("after")
        last = parse_batch(after) if after else None
        if after and last is None:
            raise invalid_field("after", f"{after[:64]!r} is not the id of a batch")
        found = await batches.store.recent(who, limit + 1, last)
        shown = found[:limit]
        ids = [one.text for one in shown]
        bodies = [self._object(one) for one in shown]
        await send_json(send, page(bodies, ids, has_more=len(found) > limit))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Describe a batch."""
        (ident,) = scope["path_params"]
        found = await self._asked().store.get(scope_of(record.current().principal), ident)
        await send_json(send, self._object(found))

    async def cancel(self, scope: Scope, _: Receive, send: Send) -> None:
        """Cancel a batch: its lines that have ended are written out."""
        (ident,) = scope["path_params"]
        batches = self._asked()
        found = await batches.store.cancel(scope_of(record.current().principal), ident)
        batches.wake()
        await send_json(send, self._object(found))

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        name, all_, one = "batches", "/v1/batches", "/v1/batches/{batch_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("POST", all_, name, self.create, write),
            Route("POST", "/v1/batch", name, self.create_of_requests, write),
            Route("GET", all_, name, self.list_batches, read),
            Route("GET", one, name, self.retrieve, read),
            Route("POST", f"{one}/cancel", name, self.cancel, write),
        ]

    def _object(self, batch: StoredBatch) -> dict[str, Any]:
        return batch_object(batch, self._asked().estimates.completion_of(batch))

    def _asked(self) -> Batches:
        if self._batches is None:
            raise no_files("batches")
        return self._batches


def _creator() -> StateScope:
    """Return for whom the caller creates a batch.

    Raises:
        BatonError: PERMISSION_DENIED: the key may not read files, or not run requests.
    """
    principal = record.current().principal
    principal.require(KeyScope.INFERENCE)
    principal.require(KeyScope.STATE_READ)
    return scope_of(principal)
