"""Cross-origin requests: which web pages may read the responses."""

from collections.abc import Sequence

from services.frontend.http.asgi import ASGIApp, Message, Receive, Scope, Send
from services.frontend.http.body import header

ANY = "*"
_METHODS = b"GET, POST, DELETE"
_KEEP_SECONDS = b"600"
"""How long browsers cache the result of a preflight request."""
_EXPOSED = b", ".join(
    [
        *(b"x-request-id", b"retry-after", b"retry-after-ms"),
        b"x-baton-model",
        *(
            b"x-ratelimit-%b-%b" % (what, of)
            for of in (b"requests", b"tokens")
            for what in (b"limit", b"remaining", b"reset")
        ),
    ]
)
"""Response headers that pages may read, in addition to those always allowed."""


class CorsMiddleware:
    """Answers browsers' preflight requests, and says with each response who may read it.

    Requests of other origins are served as without CORS: the browser keeps the responses from the
    page. Credentials (cookies) are never allowed.

    Args:
        app: the wrapped application.
        origins: such as `https://chat.example.org`; `*` allows any.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = header(scope, b"origin") if scope["type"] == "http" else ""
        if not origin or self._origins.isdisjoint((origin, ANY)):
            await self._app(scope, receive, send)
            return
        allowed = ANY if ANY in self._origins else origin
        headers = [(b"access-control-allow-origin", allowed.encode("latin-1"))]
        if allowed != ANY:
            headers.append((b"vary", b"origin"))
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method"):
            await _answer_preflight(scope, send, headers)
            return
        headers.append((b"access-control-expose-headers", _EXPOSED))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _answer_preflight(
    scope: Scope, send: Send, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    asked = header(scope, b"access-control-request-headers").encode("latin-1")
    more = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", _KEEP_SECONDS),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": b""})
