"""The head of a request: the client's fields before the first message."""

from dataclasses import dataclass, field

from baton.errors import BatonError, Reason
from baton.rpc.http2.framing.headers import Headers
from baton.rpc.request_id import REQUEST_ID_KEY, TRACEPARENT_KEY
from baton.rpc.wire import compression
from baton.rpc.wire.timeouts import read_timeout

_MAX_BYTES = 16 * 1024
_KEY_BYTES = 1024
"""Bytes of a credential that count: a longer one is invalid, which is reported instead of its
length."""
_CONTENT_TYPE = b"application/grpc"
_REQUEST_ID = REQUEST_ID_KEY.encode()
_TRACEPARENT = TRACEPARENT_KEY.encode()


@dataclass(slots=True)
class CallHead:
    """The request fields that a server uses, as received."""

    fields: Headers = field(repr=False)
    """All fields, including secrets."""
    size: int = 0
    """Bytes of all names and values, without the excess of an overlong credential."""
    http_method: bytes = b""
    path: str = ""
    content_type: bytes = b""
    timeout: bytes = b""
    encoding: bytes = compression.IDENTITY
    """Encoding of the client's messages."""
    caller_id: str = ""
    """The request ID that the client sent; empty: none."""
    traceparent: str = ""
    """The client's trace; empty: none."""

    @property
    def is_grpc(self) -> bool:
        """Whether the content type is gRPC's."""
        kind, size = self.content_type, len(_CONTENT_TYPE)
        return kind[:size] == _CONTENT_TYPE and kind[size : size + 1] in (b"", b"+", b";")

    def timeout_seconds(self) -> float | None:
        """Return the time limit of the call; None: no limit.

        Raises:
            BatonError: MALFORMED_HEAD.
        """
        return read_timeout(self.timeout) if self.timeout else None

    def check(self) -> None:
        """Check the rules that apply to calls of every method.

        Raises:
            BatonError: HEAD_TOO_LARGE, or UNIMPLEMENTED for an unknown encoding.
        """
        if self.size > _MAX_BYTES:
            raise BatonError(
                Reason.HEAD_TOO_LARGE, f"metadata exceeds the limit of {_MAX_BYTES} bytes"
            )
        if not compression.is_known(self.encoding):
            known = compression.ACCEPTED.decode()
            raise BatonError(Reason.UNIMPLEMENTED, f"grpc-encoding: must be one of {known}")


def read_head(fields: Headers) -> CallHead:
    """Return the head of a request of these fields."""
    head = CallHead(fields)
    size = 0
    for name, value in fields:
        size += len(name) + len(value)
        if name == b"authorization":
            size -= max(0, len(value) - _KEY_BYTES)
        elif name == b":path":
            head.path = value.decode("latin-1")
        elif name == b":method":
            head.http_method = value
        elif name == b"content-type":
            head.content_type = value
        elif name == b"grpc-timeout":
            head.timeout = value
        elif name == b"grpc-encoding":
            head.encoding = value
        elif name == _REQUEST_ID:
            head.caller_id = value.decode("latin-1")
        elif name == _TRACEPARENT:
            head.traceparent = value.decode("latin-1")
    head.size = size
    return head
