"""Counts the fields of a protobuf message before any object is made of them.

A few megabytes can hold two million empty submessages: parsing them takes seconds and a gigabyte.
The wire format is that of protobuf.dev/programming-guides/encoding.
"""

from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from baton.rpc.wire.varints import read_varint

_VARINT, _I64, _LEN, _GROUP, _END_GROUP, _I32 = range(6)


def has_more_fields(data: bytes | bytearray | memoryview, message: Descriptor, most: int) -> bool:
    """Return whether a message has more than `most` fields, including those of submessages.

    Invalid bytes count up to the first error; the parser reports it.

    Args:
        data: the message's bytes.
        message: its type.
        most: most fields allowed; the elements of a packed field count as one.
    """
    try:
        return _count(data, 0, len(data), message, most) > most
    except IndexError:
        return False


def _count(
    data: bytes | bytearray | memoryview, at: int, end: int, message: Descriptor, most: int
) -> int:
    """Return the number of fields between two offsets, or one above `most`.

    Raises:
        IndexError: a number has no end.
    """
    submessages = _submessages(message)
    count = 0
    while at < end:
        count += 1
        if count > most:
            return count
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = read_varint(data, at - 1)
        kind = key & 7
        if kind == _LEN and at < end:
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = read_varint(data, at - 1)
            if size and key in submessages and at + size <= end:
                count += _count(data, at, at + size, submessages[key], most - count)
            at += size
        elif kind == _VARINT:
            _, at = read_varint(data, at)
        elif kind == _I32:
            at += 4
        elif kind == _I64:
            at += 8
        elif kind not in (_GROUP, _END_GROUP):  # fields of a group count like those around them
            return count
    return count


@cache
def _submessages(message: Descriptor) -> dict[int, Descriptor]:
    """Return the types of a message's submessages, by the keys of their fields on the wire."""
    return {
        number << 3 | _LEN: field.message_type
        for number, field in message.fields_by_number.items()
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None
    }
