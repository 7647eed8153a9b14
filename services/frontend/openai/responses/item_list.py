"""Pages of stored items."""

from collections.abc import Sequence
from typing import Any

import msgspec


def item_list(bodies: Sequence[str], *, more: bool) -> dict[str, Any]:
    """Return a page of items in OpenAI's form.

    Args:
        bodies: of the items.
        more: whether there are further ones.
    """
    ids = [msgspec.json.decode(body)["id"] for body in (*bodies[:1], *bodies[-1:])]
    return {
        "object": "list",
        "data": [msgspec.Raw(body.encode()) for body in bodies],
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": more,
    }
