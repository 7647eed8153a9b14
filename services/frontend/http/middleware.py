"""What every HTTP request gets: an id, its caller's trace, and an answer, whatever happens."""

from opentelemetry import context as otel

from baton.errors import BatonError, Reason
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.frontend.http.asgi import ASGIApp, Message, Receive, Scope, Send
from services.frontend.http.body import ClientGoneError, header
from services.frontend.http.connection import connection_of
from services.frontend.http.responses import send_error
from services.frontend.requests.request_id import identify

log = get_logger(__name__)


class RequestMiddleware:
    """The outermost ASGI application: wraps `app`, on the event loop, and holds no state."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        named = (b"x-request-id", identify(header(scope, b"x-request-id")).encode())
        traceparent = header(scope, b"traceparent")
        if traceparent:
            otel.attach(tracing.extract(traceparent))
        begun = False

        async def send_named(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message["headers"], named]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
            return
        except ClientGoneError:
            return
        except BatonError as error:
            failure = error
        except Exception:
            log.exception("http.request.failed", path=scope["path"])
            failure = BatonError(Reason.INTERNAL, "internal error")
        if begun:
            connection_of(
                scope
            ).cut()  # half an answer is there; the client must see that no more comes
        else:
            await send_error(send_named, failure)
