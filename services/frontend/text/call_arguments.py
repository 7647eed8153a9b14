"""Arguments of calls in a conversation, as chat templates take them.

A model writes them, and `max_tokens` may cut them, so they need not be JSON. Templates differ in
what they take: an object whose members they write, an object that they write as JSON, or text.
"""

import json
import re
from typing import Any

from services.frontend.text.json_depth import MAX_DEPTH, deeper

_MAX_COMPLETED = 64 * 1024
"""Characters of a text that is cut, whose members are still looked for."""
_STRUCTURE = re.compile(r'["{}\[\],]')
_IN_STRING = re.compile(r'["\\]')
_CLOSERS = {"{": "}", "[": "]"}


class ArgumentsObject(dict[str, Any]):
    """An object with the members that can be read, which is written as the model wrote it.

    Its text stands wherever a template writes it, as JSON or as text, so that what the model
    computed is found again, and nothing of it is lost.
    """

    def __init__(self, text: str) -> None:
        super().__init__(read_arguments(text))
        self.text = text or "{}"
        self.whole = isinstance(_parsed(self.text), dict)
        """The text is an object, all of whose members can be read."""

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: str) -> str:
        return self.text + other

    def __radd__(self, other: str) -> str:
        return other + self.text


def read_arguments(text: str) -> dict[str, Any]:
    """Return the members of arguments, those that are whole where the text is cut; none where it is
    no object, also as a string in a string, or has more than `MAX_DEPTH` levels."""
    value = _parsed(text or "{}")
    if isinstance(value, str):
        value = _parsed(value)
    if value is None:
        value = _completed(text)
    return value if isinstance(value, dict) and not deeper(value, MAX_DEPTH) else {}


def _parsed(text: str) -> Any:
    """Return the value of JSON; None: it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _completed(text: str) -> Any:
    """Return the value that a cut text begins; None: it begins none."""
    if len(text) > _MAX_COMPLETED:
        return None
    open_: list[str] = []
    ends: list[tuple[str, str]] = []
    """Texts that may be whole, and what closes them: the last is as long as there is."""
    at, in_string = 0, False
    while found := (_IN_STRING if in_string else _STRUCTURE).search(text, at):
        at, character = found.end(), found.group()
        if character == "\\":
            if at + (5 if text[at : at + 1] == "u" else 1) > len(text):
                text = text[: at - 1]  # half of an escape
            at += 1
        elif character == '"':
            in_string = not in_string
        elif character in _CLOSERS:
            open_.append(_CLOSERS[character])
            if len(open_) > MAX_DEPTH:
                return None
            ends = [(text[:at], "".join(reversed(open_)))]
        elif character == ",":
            ends = [(text[: at - 1], "".join(reversed(open_)))]
        elif not open_ or open_.pop() != character:
            return None
    closing = "".join(reversed(open_))
    for whole, close in [(text + '"' * in_string, closing), *ends]:
        if (value := _parsed(whole + close)) is not None:
            return value
    return None
