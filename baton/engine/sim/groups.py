"""The simulator's groups of layers, as the setting names them."""

from baton.engine.sim.pages import TOKEN_BYTES
from baton.kv.layout import GroupKind, KvGroup

STATE_BYTES = 256
"""Bytes of a state: fewer than those of a block, as in models."""


def parse_groups(text: str, block_tokens: int) -> tuple[KvGroup, ...]:
    """Return the groups of the setting's text, those of full attention first.

    A single one of full attention is what a layout without groups has: then there are none.
    """
    groups = []
    for part in filter(None, text.split(",")):
        name, _, span = part.partition(":")
        kind = GroupKind(name)
        size = STATE_BYTES if kind is GroupKind.STATE else block_tokens * TOKEN_BYTES
        groups.append(KvGroup(kind, size, int(span or 0)))
    groups.sort(key=lambda group: group.kind is not GroupKind.FULL)
    return () if [group.kind for group in groups] == [GroupKind.FULL] else tuple(groups)
