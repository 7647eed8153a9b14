"""Metadata of stored objects: at most 16 pairs of short texts."""

from typing import Any

from baton.errors import invalid_field

MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512


def check_metadata(given: Any) -> dict[str, str]:
    """Return the metadata of a body, checked.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise invalid_field("metadata", "must be an object whose values are strings")
    if len(given) > MAX_PAIRS:
        raise invalid_field("metadata", f"{len(given)} keys exceed the limit of {MAX_PAIRS}")
    for key, value in given.items():
        if len(key) > MAX_KEY or len(value) > MAX_VALUE:
            raise invalid_field(
                "metadata",
                f"keys have at most {MAX_KEY} characters, and values {MAX_VALUE}",
            )
    return given
