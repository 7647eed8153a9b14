"""Bounds on the parts of one HTTP request, in addition to its length: each part costs the client a
byte, and the server a call."""

from collections.abc import Sequence

from baton.errors import BatonError, Reason

_FREE_CHUNKS = 4096
_CHUNK_BYTES = 64
"""Up to this many chunks may be of any size; each further one counts as this many bytes."""
_FRAME_BYTES = 32
"""Bytes of a chunk's framing: its length, and line ends."""
_KEY_BYTES = 1024
"""Bytes of a credential that count: a longer one is reported as no key, not by its length."""
_VERSIONS = ("1.1", "1.0")


class BodyBounds:
    """Counts what arrives of one request's body. Owned by its connection.

    Args:
        max_trailers: most trailer fields.
        max_bytes: of these, and of chunk extensions.
    """

    __slots__ = ("_chunks", "_frame_bytes", "_max_bytes", "_max_trailers", "_trailers", "size")

    def __init__(self, max_trailers: int, max_bytes: int) -> None:
        self.size = 0
        """Bytes of the body received."""
        self._max_trailers = max_trailers
        self._max_bytes = max_bytes
        self._chunks = self._trailers = self._frame_bytes = 0

    def add(self, size: int) -> None:
        """Count bytes of the body."""
        self.size += size

    def add_frames(self, size: int) -> None:
        """Count bytes of its framing: chunk lengths and extensions, and trailers.

        Raises:
            BatonError: HEAD_TOO_LARGE.
        """
        self._frame_bytes += size
        if self._frame_bytes > self._max_bytes + self._chunks * _FRAME_BYTES:
            raise BatonError(
                Reason.HEAD_TOO_LARGE,
                f"chunk extensions and trailers exceed the limit of {self._max_bytes} bytes",
            )

    def add_chunk(self) -> None:
        """Count a chunk.

        Raises:
            BatonError: MALFORMED_BODY: too many of them are nearly empty.
        """
        self._chunks += 1
        if self._chunks > _FREE_CHUNKS and self._chunks * _CHUNK_BYTES > self.size:
            raise BatonError(
                Reason.MALFORMED_BODY,
                f"the body has more than {_FREE_CHUNKS} chunks of less than {_CHUNK_BYTES} bytes: "
                "send larger chunks",
            )

    def add_trailer(self) -> None:
        """Count a trailer field.

        Raises:
            BatonError: HEAD_TOO_LARGE.
        """
        self._trailers += 1
        if self._trailers > self._max_trailers:
            raise too_many_fields(self._max_trailers)


def check_head(
    version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], max_bytes: int
) -> None:
    """Check a complete head by RFC 9112 (sections 2.3, 3.2 and 6.1).

    Bodies are chunked or have a length: another server might find a different end of a body whose
    coding is not known here.

    Args:
        version: of HTTP, from the request line.
        target: of the request.
        headers: with names in lower case.
        max_bytes: of target, names and values.

    Raises:
        BatonError: MALFORMED_HEAD, HEAD_TOO_LARGE.
    """
    if version != "1.1":
        check_version(version)
    hosts, size = 0, len(target)
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts += 1
        elif name == b"authorization":
            size -= max(0, len(value) - _KEY_BYTES)
        elif name == b"transfer-encoding":
            _check_coding(version, value)
    if size > max_bytes:
        raise too_long(max_bytes)
    if b"#" in target:
        raise BatonError(Reason.MALFORMED_HEAD, "the request target has a fragment (#)")
    if hosts > 1 or (not hosts and version == "1.1"):
        text = f"the request has {hosts or 'no'} Host header fields; HTTP/1.1 requires exactly one"
        raise BatonError(Reason.MALFORMED_HEAD, text)


def _check_coding(version: str, value: bytes) -> None:
    if version == "1.0":
        text = "HTTP/1.0 does not support transfer-encoding: send a content-length"
        raise BatonError(Reason.MALFORMED_HEAD, text)
    if value.strip().lower() != b"chunked":
        text = "only the transfer-encoding `chunked` is supported, once and without others"
        raise BatonError(Reason.MALFORMED_HEAD, text)


def check_version(version: str) -> None:
    """Check the version of HTTP alone; errors as for `check_head`."""
    if version not in _VERSIONS:
        text = f"HTTP/{version} is not supported on this port: send HTTP/1.1"
        raise BatonError(Reason.MALFORMED_HEAD, text)


def too_long(max_bytes: int) -> BatonError:
    """Return the error of a head with more bytes than allowed."""
    text = f"the request head exceeds the limit of {max_bytes} bytes"
    return BatonError(Reason.HEAD_TOO_LARGE, text)


def too_many_fields(most: int) -> BatonError:
    """Return the error of a request with more header fields than allowed."""
    return BatonError(Reason.HEAD_TOO_LARGE, f"the request has more than {most} header fields")
