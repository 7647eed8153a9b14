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
_SCHEME = re.compile(r"[a-z0-9+]+://")
_DIGEST = re.compile(r"[0-9a-f]{32}")


class AdapterRecord(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """A LoRA adapter."""

    id: str
    """The name in requests."""
    base: str = ""
    """The model that it is an adapter of; empty: it was removed."""
    location: str = ""
    """A directory in PEFT's layout, at the same path on all workers of the model."""
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
    if not _LOCATION.fullmatch(location):
        raise ValueError(
            f"location: {location.encode('unicode_escape').decode()[:64]!r} is not an absolute "
            "path of at most 1,024 printable ASCII characters"
        )
    if _SCHEME.match(location):
        raise ValueError(f"location: {location[:64]!r} is a URL: give a directory's absolute path")
    path = PurePosixPath(location)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"location: {location[:64]!r} is not an absolute path without `..`")


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
