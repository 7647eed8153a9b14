"""Pages of lists in OpenAI's form."""

from collections.abc import Sequence
from typing import Any


def page(data: Sequence[object], ids: Sequence[str], *, has_more: bool) -> dict[str, Any]:
    """Return a page of a list.

    Args:
        data: its objects.
        ids: of its objects; those of the first and the last are enough.
        has_more: whether there are further ones.
    """
    return {
        "object": "list",
        "data": data,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }
