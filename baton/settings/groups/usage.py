"""Groups of usage records and prices."""

from pathlib import Path

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.groups.kafka import KafkaSettings
from baton.settings.values import Bytes, Prices


class UsageSettings(SettingsGroup):
    """Usage records, and prices."""

    spool_path: Path | None = Field(
        None,
        description="directory on a local disk that holds each request's usage record until it is "
        "delivered, kept across restarts; frontends may share it; none: usage is not recorded",
    )
    spool_bytes: Bytes = Field(
        256 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="maximum size of a frontend's records there; beyond it, the usage of further "
        "requests is not recorded, and requests of tenants with a budget are rejected",
    )
    fsync_seconds: float = Field(
        1,
        ge=0,
        le=3600,
        description="interval at which records are synced to disk; until then they survive a "
        "crash of the process; 0: before the end of a response is sent",
    )
    stall_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="longest time that the end of a response waits for its record to be written",
    )
    jsonl_path: Path | None = Field(
        None,
        description="directory for delivered records as files, one JSON object per line",
    )
    jsonl_file_bytes: Bytes = Field(
        64 * MIB,
        ge=64 * 1024,
        le=1024 * 1024 * MIB,
        description="size at which a new file is started",
    )
    kafka: KafkaSettings = KafkaSettings()
    prices: Prices = Field(
        {},
        description="prices, model[@tier][+batch]=input/cached input/output in dollars per "
        "million tokens, separated by commas; model * matches any; the cached input may be left "
        "out",
    )
    provider_prices: Prices = Field(
        {},
        description="prices of a provider, in the same format, to compare with in `baton usage` "
        "and /v1/usage",
    )
