"""Pages of stored items."""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.frontend.http.pages import page


def item_list(bodies: Sequence[str], *, more: bool) -> dict[str, Any]:
    """Return a page of items in OpenAI's form.

    Args:
        bodies: of the items.
        more: whether there are further ones.
    """
    ids = [msgspec.json.decode(body)["id"] for body in (*bodies[:1], *bodies[-1:])]
    return page([msgspec.Raw(body.encode()) for body in bodies], ids, has_more=more)
