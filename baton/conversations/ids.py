"""Ids of stored rows: UUIDv7 in blocks, and their texts, such as `resp_` and 32 digits."""

import re
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import UUID

BLOCK_IDS = 1 << 20
"""Ids in a block: its own, and those of items after it."""
_RANDOM_BITS = 42
_DIGITS = re.compile(r"[0-9a-f]{32}")
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
RESPONSE, CONVERSATION = "resp", "conv"


def draw_block(now_ms: int, after: UUID | None = None) -> UUID:
    """Return the first id of a new block; 54 of its bits are random.

    Args:
        now_ms: milliseconds since the Unix epoch.
        after: the block's ids are above this one, even if it is of a frontend whose clock is ahead.
    """
    if after is not None:
        now_ms = max(now_ms, milliseconds_of(after) + 1)
    high = now_ms << 80 | 7 << 76 | secrets.randbits(12) << 64
    return UUID(int=high | 2 << 62 | secrets.randbits(_RANDOM_BITS) << 20)


def milliseconds_of(ident: UUID) -> int:
    """Return the time of an id, in milliseconds since the Unix epoch."""
    return ident.int >> 80


def nth(block: UUID, count: int) -> UUID:
    """Return the id that is `count` after a block's first one."""
    return UUID(int=block.int + count)


def block_of(item: UUID) -> UUID:
    """Return the first id of an item's block: that of its response."""
    return UUID(int=item.int - item.int % BLOCK_IDS)


def ids_after(block: UUID, count: int) -> list[UUID]:
    """Return the ids of the first items of a block."""
    return [nth(block, at) for at in range(1, count + 1)]


def text_of(prefix: str, ident: UUID) -> str:
    """Return the text of an id."""
    return f"{prefix}_{ident.hex}"


def parse_id(prefix: str, text: str) -> UUID | None:
    """Return the id of a text; None: it is not one of that kind."""
    kind, _, digits = text.rpartition("_")
    if kind != prefix or not _DIGITS.fullmatch(digits):
        return None
    return UUID(digits)


def parse_item_id(text: str) -> UUID | None:
    """Return the id of an item of any kind; None: it is not one."""
    digits = text.rpartition("_")[2]
    return UUID(digits) if "_" in text and _DIGITS.fullmatch(digits) else None


def item_text(item: Mapping[str, Any], ident: UUID) -> str:
    """Return the text of an item's id, by its type."""
    return text_of(_PREFIXES.get(str(item.get("type")), "item"), ident)
