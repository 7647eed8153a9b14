"""What every HTTP request gets: an id, its caller's trace, and an answer, whatever happens."""

from opentelemetry import context as otel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baton.rpc.errors import BatonError, Reason
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.frontend.http.answer import send_error
from services.frontend.http.body import ClientGoneError, header
from services.frontend.http.connection import cut
from services.frontend.identity import identify

log = get_logger(__name__)


class Edge:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self  # tells starlette to raise its errors instead of answering
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

        allow = ""
        try:
            await self._app(scope, receive, send_named)
            return
        except ClientGoneError:
            return
        except BatonError as error:
            failure = error
        except HTTPException as error:
            failure, allow = _not_served(scope, error)
        except Exception:
            log.exception("request failed", path=scope["path"])
            failure = BatonError(Reason.INTERNAL, "internal error")
        if begun:
            cut(scope)  # half an answer is there; the client must see that no more comes
        else:
            await send_error(send_named, failure, allow)


def _not_served(scope: Scope, error: HTTPException) -> tuple[BatonError, str]:
    """Starlette's error as ours, and the methods that are allowed, if it is about that."""
    path, method = scope["path"][:200], scope["method"]
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow", "")
        message = f"{path} does not take {method}, but {allow}"
        return BatonError(Reason.METHOD_NOT_ALLOWED, message), allow
    return BatonError(Reason.NOT_FOUND, f"there is nothing at {path}"), ""
