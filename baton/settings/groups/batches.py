"""The groups of files and of batches."""

import re
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes

_WINDOW = re.compile(r"([0-9]{1,9})([smh])")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_MAX_WINDOW_SECONDS = 7 * 24 * 3600
_SCHEMES = ("file", "s3", "gs", "az", "memory")


class FileSettings(SettingsGroup):
    """Files of `/v1/files`. Their rows are in the database of `state.url`."""

    url: str = Field(
        "",
        description="where their bytes are: file:///directory, s3://bucket/path, gs://bucket/path "
        "or az://account/container/path, with credentials from the environment; none: there are "
        "no files and no batches",
    )
    max_file_bytes: Bytes = Field(200 * MIB, ge=1, description="maximum size of a file")
    max_tenant_bytes: Bytes = Field(
        20 * 1024 * MIB, ge=1, description="maximum size of all files of a tenant"
    )
    max_uploads: int = Field(
        8, ge=1, le=1000, description="maximum uploads at once per frontend; each takes 15 MiB"
    )
    upload_seconds: float = Field(
        600.0, gt=0, le=86_400, description="time for an upload, or for one read of a file"
    )
    sweep_seconds: float = Field(
        30.0,
        ge=0.1,
        le=3600,
        description="time between two looks for expired files and for bytes without a file",
    )

    @field_validator("url")
    @classmethod
    def _known(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in _SCHEMES:
            raise ValueError(f"must start with one of {', '.join(_SCHEMES)} and ://")
        return value


class BatchSettings(SettingsGroup):
    """Batches of `/v1/batches`, where there are files."""

    max_running: int = Field(
        512,
        ge=0,
        le=10_000,
        description="maximum lines that a frontend runs at once, of those that its router has room "
        "for; 0: other frontends run them",
    )
    connections: int = Field(
        4, ge=1, le=1000, description="maximum connections per frontend, for files and batches"
    )
    max_lines: int = Field(50_000, ge=1, le=1_000_000, description="maximum lines of a batch")
    completion_windows: str = Field(
        "24h",
        description="values of completion_window that batches may have: numbers with the unit s, m "
        "or h, separated by commas",
    )
    retries: int = Field(
        2,
        ge=0,
        le=100,
        description="times that a line runs again after it failed for no fault of its own; waiting "
        "for workers or for limits does not count",
    )
    rate_seconds: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="time over which the rate is measured at which lines end",
    )
    lease_seconds: float = Field(
        15.0,
        ge=2,
        le=600,
        description="time after which another frontend runs the lines of one that does not respond",
    )

    retention_days: int = Field(
        30,
        ge=0,
        le=3650,
        description="batches are deleted so long after their end, but not their files; 0: never",
    )

    @field_validator("completion_windows")
    @classmethod
    def _are_windows(cls, value: str) -> str:
        windows_of(value)
        return value

    @property
    def windows(self) -> dict[str, int]:
        """Seconds of each completion window, by its name."""
        return windows_of(self.completion_windows)


def windows_of(text: str) -> dict[str, int]:
    """Return seconds by completion window.

    Raises:
        ValueError: a window is malformed, or longer than a week.
    """
    found: dict[str, int] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        matched = _WINDOW.fullmatch(name)
        seconds = 0 if matched is None else int(matched[1]) * _UNITS[matched[2]]
        if not 0 < seconds <= _MAX_WINDOW_SECONDS:
            raise ValueError(f"{name!r} is not a window of 1s to 168h, such as 24h")
        found[name] = seconds
    if not found:
        raise ValueError("must have a window, such as 24h")
    return found
