"""Groups of layers in messages, and in words."""

from collections.abc import Iterable

from baton.internal.v1 import cluster_pb2
from baton.kv.layout import GroupKind, KvGroup


def group_message(group: KvGroup) -> cluster_pb2.KvGroup:
    """Return a group as a message."""
    return cluster_pb2.KvGroup(
        kind=group.kind, span_tokens=group.span_tokens, block_bytes=group.block_bytes
    )


def groups_of(messages: Iterable[cluster_pb2.KvGroup]) -> tuple[KvGroup, ...]:
    """Return the groups of messages.

    Raises:
        ValueError: one is of an unknown kind, or a field is out of range; the text names it.
    """
    return tuple(KvGroup(GroupKind(one.kind), one.block_bytes, one.span_tokens) for one in messages)


def group_text(kind: str, span_tokens: int) -> str:
    """Return a group in words: `full`, `window 128`."""
    return f"{kind} {span_tokens}" if span_tokens else kind
