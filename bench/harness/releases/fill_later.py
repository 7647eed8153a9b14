"""Added to the version of later.py: fields that only it knows, in every message that it sends."""

from typing import Any

from google.protobuf.message import Message

FIELD = "of_a_later_release"


def patch(module: dict[str, Any]) -> None:
    """Set the field in the messages of a generated module when they are serialized."""
    for kind in [one for one in module.values() if isinstance(one, type)]:
        if issubclass(kind, Message):
            _patch(kind)


def _patch(kind: Any) -> None:
    serialize = kind.SerializeToString

    def filled(self: Any, **options: Any) -> bytes:
        fill(self)
        return bytes(serialize(self, **options))

    kind.SerializeToString = filled


def fill(message: Any) -> None:
    """Set the field in a message and in all messages within it."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in (value,) if isinstance(value, Message) else value:
            fill(one)
    if FIELD in message.DESCRIPTOR.fields_by_name:
        setattr(message, FIELD, "later")
