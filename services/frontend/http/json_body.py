"""Decodes JSON bodies, and reports what is wrong with malformed ones."""

import re
from typing import TypeVar

import msgspec

from baton.errors import BatonError, Reason, invalid_field

B = TypeVar("B")

_PATH = re.compile(r"^(.*) - at `(?:key` in `)?\$\.?(.*)`$", re.DOTALL)
_FIELD = re.compile(
    r"^Object (contains unknown|missing required) field `(.*?)`(?: - at `\$\.?(.*)`)?$", re.DOTALL
)
_MAX_NAME = 64


def decode_body(decoder: msgspec.json.Decoder[B], data: bytes) -> B:
    """Return a decoded body.

    Raises:
        BatonError: MALFORMED_BODY: it is not JSON; INVALID_FIELD: a type is wrong, or a field is
            missing or unknown.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        if (about := _FIELD.match(str(error))) is not None:
            wrong, name, place = about.groups()
            what = "is required" if wrong == "missing required" else "unknown parameter"
            field = f"{place}.{name[:_MAX_NAME]}" if place else name[:_MAX_NAME]
            raise invalid_field(field, what) from None
        match = _PATH.match(str(error))
        if match is None:
            raise BatonError(Reason.MALFORMED_BODY, f"the body is invalid: {error}") from None
        what, field = match.groups()
        field = field.removesuffix("[...]")
        raise invalid_field(field, what) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(error) from None
    except RecursionError:
        raise BatonError(Reason.MALFORMED_BODY, "the body is nested too deeply") from None


def not_json(
    error: msgspec.DecodeError | UnicodeDecodeError, field: str | None = None
) -> BatonError:
    """Return the error of a body, or of a field with JSON, that is not JSON."""
    if isinstance(error, UnicodeDecodeError):
        what = f"a string is not UTF-8 ({error.reason})"
    else:
        what = str(error).removeprefix("JSON is malformed: ")
    return BatonError(
        Reason.MALFORMED_BODY, f"{field or 'the body'} is not JSON: {what}", field=field
    )
