"""Protobuf's variable-length integers (protobuf.dev/programming-guides/encoding)."""

_MAX_SHIFT = 63
"""Shift of the tenth byte, the last that is allowed."""


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at an offset, and the offset of its end.

    Raises:
        IndexError: it has no end, or more than ten bytes.
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise IndexError("no varint is that long")
