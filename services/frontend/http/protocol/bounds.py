"""What one HTTP request may consist of beside its length: a client pays a byte for each part, the
server a call."""

from collections.abc import Sequence

from baton.errors import BatonError, Reason

_FREE_CHUNKS = 4096
_CHUNK_BYTES = 64
"""Chunks may be as small as they like up to that many; of more, each stands for so many bytes."""
_FRAME_BYTES = 32
"""What a chunk needs beside its bytes: its length, and ends of lines."""
_KEY_BYTES = 1024
"""Of a credential, what counts: a longer one is no key, which is told instead of its length."""
_VERSIONS = ("1.1", "1.0")


class BodyBounds:
    """Counts what comes of one request's body. Owned by its connection.

    Args:
        max_trailers: fields that may come behind it.
        max_bytes: of these, and of extensions of its chunks.
    """

    __slots__ = ("_chunks", "_frame_bytes", "_max_bytes", "_max_trailers", "_trailers", "size")

    def __init__(self, max_trailers: int, max_bytes: int) -> None:
        self.size = 0
        """Bytes of it that came."""
        self._max_trailers = max_trailers
        self._max_bytes = max_bytes
        self._chunks = self._trailers = self._frame_bytes = 0

    def add(self, size: int) -> None:
        """Count bytes of it."""
        self.size += size

    def add_frames(self, size: int) -> None:
        """Count bytes of what frames it: lengths and extensions of chunks, and trailers.

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
            BatonError: MALFORMED_BODY, many of them are next to empty.
        """
        self._chunks += 1
        if self._chunks > _FREE_CHUNKS and self._chunks * _CHUNK_BYTES > self.size:
            raise BatonError(
                Reason.MALFORMED_BODY,
                f"the body has more than {_FREE_CHUNKS} chunks of less than {_CHUNK_BYTES} bytes: "
                "send larger chunks",
            )

    def add_trailer(self) -> None:
        """Count a field behind it.

        Raises:
            BatonError: HEAD_TOO_LARGE.
        """
        self._trailers += 1
        if self._trailers > self._max_trailers:
            raise too_many_fields(self._max_trailers)


def check_head(
    version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], max_bytes: int
) -> None:
    """Check a head that is whole, as RFC 9112 has it (sections 2.3, 3.2 and 6.1).

    Bodies are chunked or have a length: what another server would read by a coding that is not
    known here, it would end elsewhere.

    Args:
        version: of HTTP, as the request line says it.
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
    """Check the version of HTTP alone; errors as of `check_head`."""
    if version not in _VERSIONS:
        text = f"HTTP/{version} is not supported on this port: send HTTP/1.1"
        raise BatonError(Reason.MALFORMED_HEAD, text)


def too_long(max_bytes: int) -> BatonError:
    """Return the error of a head that has more bytes than are taken."""
    text = f"the request head exceeds the limit of {max_bytes} bytes"
    return BatonError(Reason.HEAD_TOO_LARGE, text)


def too_many_fields(most: int) -> BatonError:
    """Return the error of a request that has more header fields than are taken."""
    return BatonError(Reason.HEAD_TOO_LARGE, f"the request has more than {most} header fields")
