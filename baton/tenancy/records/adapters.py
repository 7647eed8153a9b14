"""Adapters that workers load while they serve: one record each."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from baton.settings.values import MODEL_NAME

MAX_REGISTERED = 1000
"""Adapters of a cluster."""
MAX_RANK = 512
_NAME = re.compile(MODEL_NAME)
_LOCATION = re.compile(r"[!-~ ]{1,1024}")
_SCHEME = re.compile(r"([A-Za-z0-9+.-]*)://(.*)")
_SCHEMES = ("s3", "https", "http", "hf")
_HOST_AND_PATH = re.compile(r"[\w.-]+(:\d+)?(/[^?#%@\s]*(@[\w.+/-]+)?)?", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{32}")


class AdapterRecord(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """A LoRA adapter."""

    id: str
    """The name in requests."""
    base: str = ""
    """The model that it is an adapter of; empty: it was removed."""
    location: str = ""
    """A directory in PEFT's layout, at the same path on all workers of the model, or a URL."""
    digest: str = ""
    """Of scaling and matrices, 32 hexadecimal digits: what workers load has this digest."""
    rank: int = 0
    """The highest rank of a module."""
    bytes: int = 0
    """Length of its safetensors file."""
    created_seconds: int = 0
    version: int = 1


def check_adapter(record: AdapterRecord) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    _check_name("adapter", record.id)
    if not record.base:
        return
    _check_name("base", record.base)
    if record.base == record.id:
        raise ValueError(f"adapter: {record.id} cannot be an adapter of itself")
    check_location(record.location)
    if not _DIGEST.fullmatch(record.digest):
        raise ValueError("digest: must be 32 hexadecimal digits")
    if not 1 <= record.rank <= MAX_RANK:
        raise ValueError(f"rank: {record.rank} is out of range: 1 to {MAX_RANK}")
    if record.bytes < 1:
        raise ValueError(f"bytes: {record.bytes} is out of range: at least 1")


def check_location(location: str) -> None:
    """Check that an adapter's location names one place, whoever reads it.

    Raises:
        ValueError: what it may be.
    """
    shown = location.encode("unicode_escape").decode()[:64]
    if not _LOCATION.fullmatch(location):
        raise ValueError(
            f"location: {shown!r} is not an absolute path or a URL of at most 1,024 printable "
            "ASCII characters"
        )
    if match := _SCHEME.match(location):
        scheme, rest = match.groups()
        if scheme not in _SCHEMES:
            raise ValueError(
                f"location: {shown!r} is of no scheme that is known: "
                f"{', '.join(f'{one}://' for one in _SCHEMES)}, or a directory's absolute path"
            )
        if not _HOST_AND_PATH.fullmatch(rest) or ".." in rest.split("/"):
            raise ValueError(
                f"location: {shown!r} is not a URL of a host and a path, without password, query, "
                "fragment, `%` and `..`"
            )
        return
    path = PurePosixPath(location)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"location: {shown!r} is not an absolute path without `..`")


def is_below(location: str, place: str) -> bool:
    """Return whether a location is a place or below it: a directory, or the beginning of a URL.

    Args:
        location: as of `check_location`.
        place: the same.
    """
    if "://" in location or "://" in place:
        return f"{location.rstrip('/')}/".startswith(f"{place.rstrip('/')}/")
    return PurePosixPath(location).is_relative_to(place)


def check_adapter_with_others(record: AdapterRecord, others: Iterable[AdapterRecord]) -> None:
    """Check an adapter against all others.

    Raises:
        ValueError: the field and its limit.
    """
    others = [one for one in others if one.base and one.id != record.id]
    if record.base and len(others) >= MAX_REGISTERED:
        raise ValueError(f"adapter: there are {len(others)} adapters: at most {MAX_REGISTERED}")


def _check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        shown = name.encode("unicode_escape").decode()[:64]
        raise ValueError(f"{field}: {shown!r} is not the name of a model or adapter")
