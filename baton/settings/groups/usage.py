"""Groups of what is recorded of requests, and what they cost."""

from pathlib import Path

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.groups.kafka import KafkaSettings
from baton.settings.values import Bytes, Prices


class UsageSettings(SettingsGroup):
    """Usage records, and prices."""

    spool_path: Path | None = Field(
        None,
        description="directory on a local disk where a usage record of each request waits until it "
        "is delivered, kept across restarts; frontends may share it; none: nothing is recorded",
    )
    spool_bytes: Bytes = Field(
        256 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="most bytes of a frontend's records there; then the usage of further requests "
        "is not recorded, and tenants with a budget are refused",
    )
    fsync_seconds: float = Field(
        1,
        ge=0,
        le=3600,
        description="records are forced to the disk after so long, and survive the end of the "
        "process before that; 0: before the end of an answer is sent",
    )
    stall_seconds: float = Field(
        0.5,
        gt=0,
        le=60,
        description="the end of an answer waits so long at most until its record is written",
    )
    jsonl_path: Path | None = Field(
        None,
        description="directory of the files that records are delivered to, one JSON object per "
        "line",
    )
    jsonl_file_bytes: Bytes = Field(
        64 * MIB,
        ge=64 * 1024,
        le=1024 * 1024 * MIB,
        description="a file of that length is followed by a new one",
    )
    kafka: KafkaSettings = KafkaSettings()
    prices: Prices = Field(
        {},
        description="prices, model[@tier][+batch]=input/cached input/output in dollars per million "
        "tokens, separated by commas; the model * is any, the cached input may be left out",
    )
    provider_prices: Prices = Field(
        {},
        description="prices of a provider to compare with in `baton usage` and /v1/usage, likewise",
    )
