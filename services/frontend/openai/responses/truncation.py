"""What a response did not see of its input, for its client."""

from collections.abc import Sequence
from typing import Any

from services.frontend.openai.responses.compaction.history import SummaryNote
from services.frontend.requests.request import DroppedTurns

AUTO = "auto"
HEADER = b"x-baton-truncated"


def transformations(
    dropped: DroppedTurns | None, items: Sequence[int], note: SummaryNote
) -> list[dict[str, Any]]:
    """Return `input_transformations` of a response.

    Args:
        dropped: messages of its prompt that are left out; None: none.
        items: how many items each message is.
        note: what a summary stands for, or why there is none.
    """
    made: list[dict[str, Any]] = []

    def add(what: tuple[str, str, str], items: int, tokens: int, *, summary: bool = False) -> None:
        kind, action, reason = what
        told = {"items": items, "tokens": tokens, "summary": summary}
        made.append({"type": kind, "action": action, "reason": reason, **told})

    if note.items:
        what = "compaction", "replaced", "context_window"
        add(what, note.items, note.tokens, summary=True)
    if note.error:
        add(("compaction", "failed", note.error), 0, 0)
    if dropped is not None:
        count = sum(items[at] for at in dropped.messages)
        add(("truncation", "removed", "context_window"), count, dropped.tokens)
    return made


def header(
    dropped: DroppedTurns | None, items: Sequence[int], note: SummaryNote
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header of a response, if it has one; arguments as of `transformations`."""
    parts = []
    for one in transformations(dropped, items, note):
        summary = str(one["summary"]).lower()
        part = f"items={one['items']}, tokens={one['tokens']}, summary={summary}"
        parts.append(f"{part}, error={one['reason']}" if one["action"] == "failed" else part)
    return ((HEADER, "; ".join(parts).encode()),) if parts else ()
