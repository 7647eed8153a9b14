"""What a request's head says about its connection, and about its body's length."""

from collections.abc import Sequence

Fields = Sequence[tuple[bytes, bytes]]
"""Header fields, with names in lower case."""


def announced_bytes(fields: Fields) -> int:
    """Return the content-length, which the parser has checked; 0: there is none."""
    for name, value in fields:
        if name == b"content-length":
            return int(value)
    return 0


def takes_more(version: str, fields: Fields) -> bool:
    """Return whether an HTTP/1.0 client that asks to keep its connection does not also close it.

    `close` takes precedence (RFC 9112, section 9.3), which llhttp ignores in that case.
    """
    return version != "1.0" or not any(
        name == b"connection" and b"close" in [one.strip() for one in value.lower().split(b",")]
        for name, value in fields
    )


def without_offer(method: bytes, target: bytes, version: str, fields: Fields) -> bytes:
    """Return a head without its upgrade to another protocol (RFC 9110, section 7.8)."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % field for field in fields if field[0] != b"upgrade"]
    return b"\r\n".join(lines) + b"\r\n\r\n"
