"""What every HTTP request has: an id, its caller's trace, a response and a record of its end."""

import asyncio

from opentelemetry import context as otel

from baton.errors import BatonError, Reason, no_memory
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.frontend.http.asgi import ASGIApp, Message, Receive, Scope, Send
from services.frontend.http.body import ClientGoneError, header
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_error
from services.frontend.requests.rate_limits import rate_limits
from services.frontend.requests.record import RequestRecord, begin, finish
from services.frontend.requests.request_id import identify

MODEL_HEADER = b"x-baton-model"
"""Header of the model or adapter that answers."""

log = get_logger(__name__)


class RequestMiddleware:
    """The outermost ASGI application: wraps `app`, on the event loop. Stateless."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        record = begin("http")
        traceparent = header(scope, b"traceparent")
        if traceparent:
            otel.attach(tracing.extract(traceparent))
        identity = identify(header(scope, b"x-request-id"))
        sender = _Sender(send, identity, record)
        try:
            await self._answer(scope, receive, sender, record)
        finally:
            status = sender.status or (record.error.http_status if record.error else 0)
            finish(record, str(status))

    async def _answer(
        self, scope: Scope, receive: Receive, sender: "_Sender", record: RequestRecord
    ) -> None:
        try:
            await self._app(scope, receive, sender)
            return
        except ClientGoneError:
            record.error = connection_of(scope).lost_error()
            return
        except asyncio.CancelledError:
            record.error = BatonError(Reason.DRAINING, "this frontend is shutting down")
            raise
        except BatonError as error:
            record.error = error
        except MemoryError:
            log.warning("http.request.no_memory", target=scope["path"])
            record.error = no_memory()
        except Exception:
            log.exception("http.request.failed", target=scope["path"])
            record.error = BatonError(Reason.INTERNAL, "internal error")
        if sender.status:
            # Half a response was sent; the client must see that it is incomplete.
            connection_of(scope).cut()
        else:
            await send_error(sender, record.error)


class _Sender:
    """Adds the request's id, what answers it and its key's remaining limits to the response's
    headers, and records the status."""

    def __init__(self, send: Send, request_id: str, record: RequestRecord) -> None:
        self.status = 0
        """Status of the response; 0 before it has begun."""
        self._send = send
        self._record = record
        self._header = (b"x-request-id", request_id.encode())

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], self._header]
            if (named := self._record.named) and self.status < 400:
                message["headers"].append((MODEL_HEADER, named.encode()))
            if self._record.limits is not None:
                message["headers"] += [
                    (name.encode(), value.encode())
                    for name, value in rate_limits(self._record.limits)
                ]
        await self._send(message)
