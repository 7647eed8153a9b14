"""Query strings: their allowed fields and values."""

import re
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import parse_qsl

from baton.errors import invalid_field

_MAX_FIELDS = 128
_MAX_VALUE = 128
_WHOLE = re.compile(r"[0-9]{1,15}")
DEFAULT_LIMIT = 20
MAX_LIMIT = 100


class QueryString:
    """The fields of one query string; lists are `name[]=…` and mappings `name[key]=…`, as
    openai-python writes them.

    Args:
        raw: the query string, without the question mark.
        known: names of the allowed fields.
        mappings: names of those with keys.

    Raises:
        BatonError: INVALID_FIELD: an unknown field, or one that is too long.
    """

    def __init__(self, raw: bytes, known: Collection[str], mappings: Collection[str] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        self._mappings: dict[str, dict[str, str]] = {}
        try:
            pairs = parse_qsl(
                raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS
            )
        except ValueError:
            raise invalid_field("query", f"has more than {_MAX_FIELDS} fields") from None
        for name, value in pairs:
            base, _, key = name.removesuffix("]").partition("[")
            if base in mappings and name.endswith("]"):
                self._mappings.setdefault(base, {})[key] = value
                continue
            name = name.removesuffix("[]")
            if name not in known:
                raise invalid_field(name[:64], "unknown parameter")
            if len(value) > _MAX_VALUE:
                raise invalid_field(name, f"is longer than {_MAX_VALUE} characters")
            self._values.setdefault(name, []).append(value)

    def text(self, name: str) -> str:
        """Return a field's value; empty: it is missing."""
        values = self.many(name)
        if len(values) > 1:
            raise invalid_field(name, "is set more than once")
        return values[0] if values else ""

    def many(self, name: str) -> Sequence[str]:
        """Return all values of a field."""
        return self._values.get(name, ())

    def mapping(self, name: str) -> dict[str, str]:
        """Return the keys and values of a mapping; the last of several for a key."""
        return self._mappings.get(name, {})

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Return a field's value, one of the choices; the first one if it is missing."""
        value = self.text(name)
        if value and value not in choices:
            raise invalid_field(name, f"{value!r} is not one of {', '.join(choices)}")
        return value or choices[0]

    def whole(self, name: str, least: int, most: int, default: int | None) -> Any:
        """Return a field's value, an integer; `default` if it is missing."""
        value = self.text(name)
        if not value:
            return default
        if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
            raise invalid_field(name, f"{value!r} is not a whole number from {least} to {most}")
        return int(value)

    def identity(self, but: Collection[str]) -> bytes:
        """Return bytes that are equal for equal values of all fields except the given ones."""
        fields = sorted((name, *self._values[name]) for name in self._values if name not in but)
        return repr(fields).encode()

    def limit(self, default: int = DEFAULT_LIMIT) -> int:
        """Return the most objects per page."""
        return int(self.whole("limit", 1, MAX_LIMIT, default))
