"""The text in a custom tool's call, read from the JSON of its arguments as that arrives."""

import json
import re

import msgspec

from services.frontend.output.custom.function import INPUT

_HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_WHOLE = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\u(?![0-9a-fA-F]{0,3}\Z)|\\[^u])*', re.DOTALL)
"""Characters of a JSON string, up to its end or to an escape that is not all there."""
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
"""The first half of a pair of escapes."""
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|.)', re.DOTALL)


class InputReader:
    """Reads the input of one call. For any split of the arguments the joined texts are the same."""

    def __init__(self) -> None:
        self._held = ""
        """Arguments not read yet."""
        self._begun = False
        """Whether the string has begun."""
        self._ended = False

    def push(self, arguments: str) -> str:
        """Add arguments, and return the text that they add; may be empty."""
        if self._ended:
            return ""
        self._held += arguments
        if not self._begun:
            head = _HEAD.match(self._held)
            if head is None:
                return ""
            self._begun, self._held = True, self._held[head.end() :]
        return self._string()

    def end(self) -> str:
        """Return the rest of the text: the arguments are complete, or cut off.

        Arguments of another form than expected are the text themselves, unless they are an object
        with the input.
        """
        if self._begun:
            return ""  # what is held back is half of an escape
        try:
            found = msgspec.json.decode(self._held)
        except (msgspec.MsgspecError, UnicodeError):
            return self._held
        given = found.get(INPUT) if isinstance(found, dict) else None
        return given if isinstance(given, str) else self._held

    def _string(self) -> str:
        whole = _WHOLE.match(self._held)
        end = whole.end() if whole is not None else 0
        self._ended = self._held[end : end + 1] == '"'
        if not self._ended and (high := _HIGH.search(self._held, 0, end)):
            end = high.start()
        read, self._held = self._held[:end], self._held[end:]
        return _text(read)


def _text(inside: str) -> str:
    """Return the text of a JSON string, given without its quotes."""
    if "\\" not in inside:
        return inside
    known = _ESCAPE.sub(lambda found: found[0] if found[1] else f"\\{found[0]}", inside)
    found: str = json.loads(f'"{known}"', strict=False)
    try:
        found.encode()
    except UnicodeEncodeError:  # half of a pair
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return found
