"""Cross-origin requests: which web pages a browser lets read the answers."""

from collections.abc import Sequence

from services.frontend.http.asgi import ASGIApp, Message, Receive, Scope, Send
from services.frontend.http.body import header

ANY = "*"
_METHODS = b"GET, POST, DELETE"
_KEEP_SECONDS = b"600"
"""For which a browser asks no second time."""
_EXPOSED = b", ".join(
    [
        *(b"x-request-id", b"retry-after", b"retry-after-ms"),
        *(
            b"x-ratelimit-%b-%b" % (what, of)
            for of in (b"requests", b"tokens")
            for what in (b"limit", b"remaining", b"reset")
        ),
    ]
)
"""Headers that pages may read, besides those that they always may."""


class CorsMiddleware:
    """Answers browsers' questions before a request, and says with each answer who may read it.

    Requests of other origins are served as if there were none: it is the browser that keeps their
    answers from the page. Cookies are never asked for.

    Args:
        app: what answers requests.
        origins: such as `https://chat.example.org`; `*` is any.
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
