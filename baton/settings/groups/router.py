"""Groups of the router."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes


class RouterPlacement(SettingsGroup):
    """Where requests run, and which prefixes are replicated."""

    disaggregation: Literal["auto", "always", "never"] = Field(
        "auto",
        description="prefill on another worker than decode: auto where it pays, always, never",
    )
    max_queue_seconds: float = Field(
        300, gt=0, le=86_400, description="a request that would wait for longer is refused"
    )
    remote_bytes_per_second: Bytes = Field(
        1_000_000_000,
        ge=MIB,
        description="what a worker is expected to fetch from another store until it was measured; "
        "at most half of local_bytes_per_second counts",
    )
    local_bytes_per_second: Bytes = Field(
        5_000_000_000,
        ge=MIB,
        description="what a worker is expected to fetch from its own store, at least",
    )
    replication_threshold: int = Field(
        4,
        ge=0,
        le=1_000_000,
        description="requests within about 10 s that waited beside the KV of their prefix, or "
        "fetched it from another store, before one more store prefetches it; 0: never",
    )
    replication_cooldown_seconds: float = Field(
        30,
        ge=0,
        le=86_400,
        description="a store is not asked for the same prefix again for so long",
    )
    prefetch_concurrent: int = Field(
        2, ge=1, le=64, description="prefetches at a time, of all stores"
    )
    prefetch_queued: int = Field(
        64, ge=1, le=65_536, description="prefetches that wait; more are dropped"
    )
    prefetch_stale_seconds: float = Field(
        5, gt=0, le=600, description="a prefetch that waited for longer is dropped"
    )
    prefetch_max_seconds: float = Field(
        60, ge=5, le=3600, description="longest time for a store to prefetch a prefix"
    )
    prefetch_bytes_per_second: Bytes = Field(
        256_000_000, ge=MIB, description="pace of each of the prefetches that run at a time"
    )
    store_cooldown_seconds: float = Field(
        30, ge=0, le=86_400, description="a store that failed to prefetch is left alone for so long"
    )


class RouterLimits(SettingsGroup):
    """What frontends may leave waiting, and how long starting and stopping take."""

    max_answers: int = Field(
        1024,
        ge=64,
        le=1_000_000,
        description="messages of answers that wait for a frontend to read them; "
        "then no more of its queries are read",
    )
    stall_seconds: float = Field(
        30, gt=0, le=3600, description="a frontend that reads no answer for so long is cut off"
    )
    ready_seconds: float = Field(
        2, ge=0, le=600, description="wait at the start for workers to report their load"
    )
    drain_notice_seconds: float = Field(
        0.3, ge=0, le=60, description="time for frontends to move to another router"
    )
    drain_flush_seconds: float = Field(
        2, ge=0, le=600, description="time for the last answers to be read"
    )


class WatchSettings(SettingsGroup):
    """The streams of load and KV events from each worker and store."""

    silence_seconds: float = Field(
        2,
        gt=0,
        le=600,
        description="a stream that is silent for so long is broken; workers and "
        "stores send at least each second",
    )
    retry_seconds: float = Field(
        1, gt=0, le=600, description="longest pause before a broken stream is opened again"
    )


class RecordingSettings(SettingsGroup):
    """What a router is told and decides, in files that `baton simulate --replay` runs again."""

    path: Path | None = Field(
        None,
        description="directory in which each start of the router makes one for its recording: "
        "tenants, keys of KV blocks, sizes and times, no text; none: nothing is recorded",
    )
    max_bytes: Bytes = Field(
        1024 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="most bytes of a recording; then it ends, and the router goes on",
    )
