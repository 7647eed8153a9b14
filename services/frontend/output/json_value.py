"""Finds the end of a JSON value in text that arrives in pieces."""

import re

_IN_CONTAINER = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_AFTER_LITERAL = re.compile(r"[\s,\]}]")


class JsonValueScanner:
    """Finds the end of one value. Tracks brackets and strings only; does not validate JSON."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begun = False

    def find_end(self, text: str, at: int) -> int | None:
        """Return where the value ends, at or after `at`; None: not in this text.

        Args:
            text: the value, continuing the last text; without leading space.
            at: where to continue in it.
        """
        if not self._begun and at < len(text):
            self._begun = True
            first = text[at]
            if first == '"':
                self._in_string = True
                at += 1
            elif first in "{[":
                self._depth = 1
                at += 1
        if self._depth or self._in_string:
            return self._find_close(text, at)
        end = _AFTER_LITERAL.search(text, at)
        return end.start() if end is not None else None

    def _find_close(self, text: str, at: int) -> int | None:
        if self._escaped and at < len(text):
            self._escaped = False
            at += 1
        while True:
            found = (_IN_STRING if self._in_string else _IN_CONTAINER).search(text, at)
            if found is None:
                return None
            at, character = found.end(), found.group()
            if character == "\\":
                if at == len(text):
                    self._escaped = True
                    return None
                at += 1
            elif character == '"':
                self._in_string = not self._in_string
            elif character in "{[":
                self._depth += 1
            else:
                self._depth -= 1
            if not self._depth and not self._in_string:
                return at
