"""What a response did not see of its input, for its client."""

from collections.abc import Sequence
from typing import Any

from services.frontend.requests.request import DroppedTurns

AUTO = "auto"
HEADER = b"x-baton-truncated"


def left_out_items(dropped: DroppedTurns, items: Sequence[int]) -> int:
    """Return how many items of an input are left out.

    Args:
        dropped: messages of its prompt.
        items: how many items each message is.
    """
    return sum(items[at] for at in dropped.messages)


def transformations(dropped: DroppedTurns | None, items: Sequence[int]) -> list[dict[str, Any]]:
    """Return `input_transformations` of a response; arguments as of `left_out_items`."""
    if dropped is None:
        return []
    told = {"items": left_out_items(dropped, items), "tokens": dropped.tokens, "summary": False}
    return [{"type": "truncation", "action": "removed", "reason": "context_window", **told}]


def header(dropped: DroppedTurns, items: Sequence[int]) -> tuple[bytes, bytes]:
    """Return the header of a response; arguments as of `left_out_items`."""
    told = f"items={left_out_items(dropped, items)}, tokens={dropped.tokens}, summary=false"
    return HEADER, told.encode()
