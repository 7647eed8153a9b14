"""Handlers of `/v1/webhook_endpoints` and `/v1/webhook_event_types`."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from baton.conversations.failures import failures
from baton.conversations.ids import parse_id
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason, invalid_field
from baton.settings import FrontendLimits, HttpSettings
from baton.tenancy.records.tenants import Scope as KeyScope
from baton.webhooks.endpoints import UNAVAILABLE
from baton.webhooks.events import EVENT, EVENT_TYPES, sample_event
from baton.webhooks.opening import Webhooks
from baton.webhooks.records import ENDPOINT, WebhookAttempt
from baton.webhooks.secrets import signed_headers
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.pages import page
from services.frontend.http.query import QueryString
from services.frontend.http.responses import send_json
from services.frontend.http.routes import Route
from services.frontend.openai.body import read_body
from services.frontend.openai.responses.storing import scope_of
from services.frontend.openai.webhooks.bodies import (
    endpoint_object,
    read_endpoint,
    read_rotation,
    read_test,
    read_update,
)
from services.frontend.requests import record

_OPERATION = "webhooks"


class WebhookHandlers:
    """Serve webhook endpoints. One object per frontend, on the loop's thread.

    Args:
        webhooks: None: there are none.
        settings: bounds of bodies.
        limits: of requests.
    """

    def __init__(
        self, webhooks: Webhooks | None, settings: HttpSettings, limits: FrontendLimits
    ) -> None:
        self._webhooks = webhooks
        self._settings = settings
        self._limits = limits

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a webhook endpoint; its secret is in this response only."""
        webhooks = self._enabled()
        body = read_endpoint(await self._body(scope, receive), webhooks.networks)
        fields = body.name, body.url, body.event_types
        found, secret = await webhooks.endpoints.create(_who(), *fields)
        await send_json(send, endpoint_object(found, secret))

    async def list(self, scope: Scope, _: Receive, send: Send) -> None:
        """List a project's webhook endpoints, the newest first."""
        endpoints = self._enabled().endpoints
        query = QueryString(scope["query_string"], ("after", "limit"))
        after, limit = query.text("after"), query.limit()
        before = parse_id(ENDPOINT, after) if after else None
        if after and before is None:
            raise invalid_field("after", f"{after[:64]!r} is not the id of a webhook endpoint")
        found = await endpoints.recent(_who(), limit + 1, before)
        shown = found[:limit]
        objects, ids = [endpoint_object(one) for one in shown], [one.text for one in shown]
        await send_json(send, page(objects, ids, has_more=len(found) > limit))

    async def retrieve(self, scope: Scope, _: Receive, send: Send) -> None:
        """Return a webhook endpoint, without its secret."""
        (ident,) = scope["path_params"]
        await send_json(send, endpoint_object(await self._enabled().endpoints.get(_who(), ident)))

    async def update(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Change a webhook endpoint's name, URL or types of events."""
        (ident,) = scope["path_params"]
        webhooks = self._enabled()
        body = read_update(await self._body(scope, receive), webhooks.networks)
        fields = body.name, body.url, body.event_types
        found = await webhooks.endpoints.update(_who(), ident, *fields)
        await send_json(send, endpoint_object(found))

    async def delete(self, scope: Scope, _: Receive, send: Send) -> None:
        """Delete a webhook endpoint, and what it has not received yet."""
        (ident,) = scope["path_params"]
        await self._enabled().endpoints.delete(_who(), ident)
        deleted = {"id": ident, "object": "webhook_endpoint.deleted", "deleted": True}
        await send_json(send, deleted)

    async def rotate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replace a webhook endpoint's secret; the old one may sign too for a day."""
        (ident,) = scope["path_params"]
        webhooks = self._enabled()
        keep_old = read_rotation(await self._body(scope, receive))
        found, secret = await webhooks.endpoints.rotate(_who(), ident, keep_old=keep_old)
        await send_json(send, endpoint_object(found, secret))

    async def test(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a sample event to a webhook endpoint, once, and return the status of its answer."""
        (ident,) = scope["path_params"]
        webhooks, who = self._enabled(), _who()
        kind = read_test(await self._body(scope, receive))
        found = await webhooks.endpoints.get(who, ident)
        secrets = await webhooks.endpoints.secrets(who, found.id)
        if not secrets:
            raise BatonError(
                Reason.FAILED_PRECONDITION,
                "the endpoint's secret cannot be opened any more: rotate it",
            )
        now = time.time()
        event = sample_event(kind, now)
        body = msgspec.json.encode(event)
        headers = signed_headers(secrets, event.id, body.decode(), now)
        sent = await webhooks.sender.send(found.url, body, headers)
        number = parse_id(EVENT, event.id)
        assert number is not None, "sample_event made it"
        began = datetime.fromtimestamp(now, UTC)
        answer = sent.seconds, sent.status, "test", sent.detail
        with failures(UNAVAILABLE):
            entry = WebhookAttempt(found.id, number, 1, kind, began, *answer)
            await webhooks.deliveries.log(who, entry)
        if not sent.status:
            raise BatonError(
                Reason.FAILED_PRECONDITION, f"the endpoint was not reached: {sent.detail}"
            )
        await send_json(
            send,
            {
                "object": "webhook_endpoint.test",
                "webhook_endpoint_id": ident,
                "event_type": kind,
                "success": True,
                "status_code": sent.status,
            },
        )

    async def event_types(self, _: Scope, __: Receive, send: Send) -> None:
        """List the types of events that webhook endpoints can receive."""
        self._enabled()
        await send_json(send, {"object": "list", "data": EVENT_TYPES})

    def routes(self) -> Sequence[Route]:
        """Return the routes of these handlers."""
        all_, one = "/v1/webhook_endpoints", "/v1/webhook_endpoints/{webhook_endpoint_id}"
        read, write = (KeyScope.STATE_READ,), (KeyScope.STATE_WRITE,)
        return [
            Route("POST", all_, _OPERATION, self.create, write),
            Route("GET", all_, _OPERATION, self.list, read),
            Route("GET", one, _OPERATION, self.retrieve, read),
            Route("POST", one, _OPERATION, self.update, write),
            Route("DELETE", one, _OPERATION, self.delete, write),
            Route("POST", f"{one}/rotate_secret", _OPERATION, self.rotate, write),
            Route("POST", f"{one}/test", _OPERATION, self.test, write),
            Route("GET", "/v1/webhook_event_types", _OPERATION, self.event_types, read),
        ]

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        return await read_body(scope, receive, self._settings, self._limits)

    def _enabled(self) -> Webhooks:
        if self._webhooks is None:
            raise BatonError(
                Reason.UNIMPLEMENTED,
                "this cluster has no webhooks: set webhooks.enabled (BATON_WEBHOOKS_ENABLED) and "
                "state.url of the frontends",
            )
        return self._webhooks


def _who() -> StateScope:
    """Return whose endpoints the caller reads and writes."""
    return scope_of(record.current().principal)
