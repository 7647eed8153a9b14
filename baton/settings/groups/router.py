"""Groups of the router."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import TIER_FLOORS, TIER_WEIGHTS, Bytes, TierFloors, TierWeights


class RouterPlacement(SettingsGroup):
    """Where requests run."""

    disaggregation: Literal["auto", "always", "never"] = Field(
        "auto",
        description="prefill on another worker than decode: auto where it pays, always, never",
    )
    max_queue_seconds: float = Field(
        300, gt=0, le=86_400, description="a request that would wait for longer is refused"
    )
    itl_target_seconds: float = Field(
        0.05,
        gt=0,
        le=60,
        description="a prompt is not computed where streams run that would wait for longer than "
        "this for a token beside a chunk of it, if there is another worker; streams whose class "
        "has an ITL target of its own (baton classes) count with that",
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


class RouterQueue(SettingsGroup):
    """Requests that wait in the router until a worker is about to run dry."""

    gate_seconds: float = Field(
        0.1,
        ge=0,
        le=86_400,
        description="a worker with no more than this to compute is given one more request; 0: one "
        "that is idle; above placement.max_queue_seconds: none waits here",
    )
    age: float = Field(
        0.005,
        ge=0,
        le=100,
        description="short prompts go first: seconds of computing that a second of waiting makes "
        "up for; the same in all routers",
    )
    window: int = Field(
        64,
        ge=1,
        le=10_000,
        description="requests, the first to go, that are planned at each change",
    )
    refresh_seconds: float = Field(
        0.5,
        ge=0,
        le=3600,
        description="how old an estimate of what is cached of a waiting prompt may be",
    )
    max_wait_seconds: float = Field(
        600, gt=0, le=86_400, description="a request that waited for so long is refused"
    )
    max_tenant: int = Field(
        2_000,
        ge=1,
        le=1_000_000,
        description="requests of one tenant that may wait for a model; one more is refused, or the "
        "last of a lower class",
    )
    max_total: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="requests that may wait for a model; one more is refused, or the last of the "
        "tier that has most waiting for its share, or of a lower class",
    )
    tier_order: Literal["weighted", "strict"] = Field(
        "weighted",
        description="how tenants' tiers share workers: weighted, by tier_weights and tier_floors; "
        "strict, a lower tier waits while a higher one does, for as long as that takes",
    )
    tier_weights: TierWeights = Field(
        dict(TIER_WEIGHTS),
        description="of tiers that wait each is given its weight's part of what workers compute, "
        "tier=weight, separated by commas; one that is not named has its default; the same in all "
        "routers",
    )
    tier_floors: TierFloors = Field(
        dict(TIER_FLOORS),
        description="part that a tier is given at the least while it waits, whatever the weights "
        "are, tier=share, separated by commas; one that is not named has its default; at most 1 in "
        "sum; the same in all routers",
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
