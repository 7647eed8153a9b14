"""Reading a request's body, within limits."""

from baton.errors import BatonError, Reason
from baton.rpc.timing.loop_watch import timeout
from services.frontend.http.asgi import Receive, Scope
from services.frontend.http.protocol.connection import Wire, connection_of


class ClientGoneError(Exception):
    """The client closed the connection: nothing can be sent."""


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value as text, empty if it is missing; `name` in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""


async def read_json(scope: Scope, receive: Receive, limit: int, seconds: float) -> bytes:
    """Read a JSON body and return its bytes.

    Args:
        scope: the request.
        receive: where its body comes from.
        limit: the longest body, in bytes.
        seconds: how long the client may take.

    Raises:
        BatonError: another content type, compressed, too long, too slow, or malformed HTTP.
        ClientGoneError: the client disconnected.
    """
    kind = header(scope, b"content-type").partition(";")[0].strip().lower()
    if kind not in ("", "application/json"):
        raise BatonError(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            f"content type {kind[:64]!r} is not supported: send application/json",
        )
    coding = header(scope, b"content-encoding").strip().lower()
    if coding not in ("", "identity"):
        raise BatonError(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            f"content encoding {coding[:64]!r} is not supported: send the body uncompressed",
        )
    announced = header(scope, b"content-length")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    wire = connection_of(scope)
    if wire.body_complete:  # it came with its head, as most do: nothing is waited for
        return await _read(receive, limit, wire)
    try:
        async with timeout(seconds):
            return await _read(receive, limit, wire)
    except TimeoutError:
        raise BatonError(
            Reason.BODY_TIMEOUT, f"the body did not arrive within {seconds:g} s"
        ) from None


async def _read(receive: Receive, limit: int, wire: Wire) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        more = message.get("more_body", False)
        if more and wire.refusal is not None:  # the rest of it will not arrive
            raise wire.refusal
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> BatonError:
    return BatonError(Reason.BODY_TOO_LARGE, f"the body exceeds the limit of {limit} bytes")
