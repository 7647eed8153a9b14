"""Arguments of calls in a conversation, in the form that chat templates expect.

A model writes them, and `max_tokens` may cut them off, so they may not be JSON. Templates expect
different forms: an object whose members they write, an object that they write as JSON, or text.
"""

import json
import re
from typing import Any

from services.frontend.text.json_depth import MAX_DEPTH, deeper

_MAX_COMPLETED = 64 * 1024
"""Most characters of a cut-off text whose members are parsed."""
_STRUCTURE = re.compile(r'["{}\[\],]')
_IN_STRING = re.compile(r'["\\]')
_CLOSERS = {"{": "}", "[": "]"}


class ArgumentsObject(dict[str, Any]):
    """An object with the parsed members, rendered exactly as the model wrote it.

    Its original text appears wherever a template writes it, as JSON or as text, so that the cached
    KV of the model's output is found again, and nothing is lost.
    """

    def __init__(self, text: str) -> None:
        super().__init__(read_arguments(text))
        self.text = text or "{}"
        self.whole = isinstance(_parsed(self.text), dict)
        """Whether the text is a complete object, all of whose members were parsed."""

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: str) -> str:
        return self.text + other

    def __radd__(self, other: str) -> str:
        return other + self.text


def read_arguments(text: str) -> dict[str, Any]:
    """Return the members of arguments, only complete ones if the text is cut off; empty if it is
    not an object, nor a string that contains one, or has more than `MAX_DEPTH` levels."""
    value = _parsed(text or "{}")
    if isinstance(value, str):
        value = _parsed(value)
    if value is None:
        value = _completed(text)
    return value if isinstance(value, dict) and not deeper(value, MAX_DEPTH) else {}


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; None: it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _completed(text: str) -> Any:
    """Return the value that a cut-off text begins; None: it begins none."""
    if len(text) > _MAX_COMPLETED:
        return None
    open_: list[str] = []
    ends: list[tuple[str, str]] = []
    """Candidate prefixes with the brackets that close them: the last one is the longest."""
    at, in_string = 0, False
    while found := (_IN_STRING if in_string else _STRUCTURE).search(text, at):
        at, character = found.end(), found.group()
        if character == "\\":
            if at + (5 if text[at : at + 1] == "u" else 1) > len(text):
                text = text[: at - 1]  # half of an escape sequence
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
