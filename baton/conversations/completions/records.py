"""Stored chat completions, their ids, and the pairs of their metadata."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

PREFIX = "chatcmpl-"
_DIGITS = re.compile(r"[0-9a-f]{32}")
_encode = msgspec.json.encode


class StoredCompletion(NamedTuple):
    """A chat completion as it is stored."""

    id: UUID
    model: str
    """The name that it was answered under."""
    metadata: Mapping[str, str]
    messages: str
    """The messages of its request: a JSON array."""
    body: str
    """What was answered: a JSON object."""


class FoundCompletion(NamedTuple):
    """A chat completion that was read."""

    id: UUID
    metadata: str
    """A JSON object."""
    body: str


class CompletionFilter(NamedTuple):
    """Which completions of a project are listed."""

    model: str = ""
    """Empty: of any."""
    metadata: Mapping[str, str] = {}
    """Pairs that they have, besides others."""


def completion_text(ident: UUID) -> str:
    """Return the text of an id."""
    return PREFIX + ident.hex


def parse_completion(text: str) -> UUID | None:
    """Return the id of a text; None: it is not that of a stored completion."""
    digits = text.removeprefix(PREFIX)
    return UUID(digits) if digits != text and _DIGITS.fullmatch(digits) else None


def pairs_of(metadata: Mapping[str, str]) -> list[str]:
    """Return the pairs of a row's metadata: `"key":"value"`, without NUL."""
    return [f"{_encode(key).decode()}:{_encode(value).decode()}" for key, value in metadata.items()]


def object_of(pairs: Sequence[str]) -> str:
    """Return the metadata of a row's pairs, as a JSON object."""
    return "{" + ",".join(pairs) + "}"
