"""Pages that a worker's streams are expected to need beyond the pages that they hold."""

from collections.abc import Iterable
from typing import NamedTuple

from baton.request.room import choice_pages


class StreamPages(NamedTuple):
    """A stream whose sequence is part of the engine's stats."""

    request: str
    """Ticket or other name of the request, whose streams share the prompt's full blocks."""
    tokens: int
    """Number of prompt and output tokens."""
    reserve: int
    """Number of future output tokens for which it is counted."""
    admitted: bool
    """Whether it holds the pages of `tokens`."""


def reserved_pages(streams: Iterable[StreamPages], block_tokens: int) -> int:
    """Return the pages that streams are counted for and do not hold, as a load report has them."""
    pages = 0
    sharing: set[str] = set()
    waiting: list[StreamPages] = []
    for stream in streams:
        if not stream.admitted:
            waiting.append(stream)
            continue
        sharing.add(stream.request)
        if stream.reserve:
            held = -(-stream.tokens // block_tokens)
            pages += -(-(stream.tokens + stream.reserve) // block_tokens) - held
    for stream in waiting:
        pages += choice_pages(stream.tokens, stream.reserve, 1, block_tokens)
        if stream.request in sharing:
            pages -= stream.tokens // block_tokens
        sharing.add(stream.request)
    return pages
