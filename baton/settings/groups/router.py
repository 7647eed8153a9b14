"""Groups of the router."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import TIER_FLOORS, TIER_WEIGHTS, Bytes, TierFloors, TierWeights


class RouterPlacement(SettingsGroup):
    """Placement of requests."""

    disaggregation: Literal["auto", "always", "never"] = Field(
        "auto",
        description="prefill and decode on different workers: auto (if it is faster), always or "
        "never",
    )
    max_queue_seconds: float = Field(
        300,
        gt=0,
        le=86_400,
        description="longest predicted wait; requests that would wait longer are rejected",
    )
    itl_target_seconds: float = Field(
        0.05,
        gt=0,
        le=60,
        description="inter-token latency to keep: a prompt is not placed next to streams that a "
        "prefill chunk would delay beyond this, if another worker is available; a class's own ITL "
        "target (baton classes) applies to its streams",
    )
    remote_bytes_per_second: Bytes = Field(
        1_000_000_000,
        ge=MIB,
        description="assumed KV bandwidth from another store until it is measured; at most half "
        "of local_bytes_per_second is used",
    )
    local_bytes_per_second: Bytes = Field(
        5_000_000_000,
        ge=MIB,
        description="minimum KV bandwidth assumed from a worker's own store",
    )


class RouterQueue(SettingsGroup):
    """The queue of requests that wait in the router until a worker has almost no work left."""

    gate_seconds: float = Field(
        0.1,
        ge=0,
        le=86_400,
        description="a worker gets its next request once it has no more than this left to "
        "compute; 0: only when it is idle; above placement.max_queue_seconds: no queueing in the "
        "router",
    )
    age: float = Field(
        0.005,
        ge=0,
        le=100,
        description="aging of shortest-first order: seconds of compute that one second of waiting "
        "offsets; the same in all routers",
    )
    window: int = Field(
        64,
        ge=1,
        le=10_000,
        description="number of requests at the head of the queue that are planned at each change",
    )
    refresh_seconds: float = Field(
        0.5,
        ge=0,
        le=3600,
        description="maximum age of the prefix cache estimate of a waiting prompt",
    )
    max_wait_seconds: float = Field(
        600, gt=0, le=86_400, description="longest wait in the queue; then the request is rejected"
    )
    max_tenant: int = Field(
        2_000,
        ge=1,
        le=1_000_000,
        description="maximum waiting requests of one tenant per model; beyond it, the new request "
        "or the last of a lower class is rejected",
    )
    max_total: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum waiting requests per model; beyond it, the new request is rejected, "
        "or the last one of a lower class or of the tier with the most waiting for its share",
    )
    tier_order: Literal["weighted", "strict"] = Field(
        "weighted",
        description="how tiers share workers: weighted, by tier_weights and tier_floors; strict: "
        "a lower tier waits as long as a higher one does",
    )
    tier_weights: TierWeights = Field(
        dict(TIER_WEIGHTS),
        description="weights by which waiting tiers share the compute, tier=weight, separated by "
        "commas; tiers not named keep their default; the same in all routers",
    )
    tier_floors: TierFloors = Field(
        dict(TIER_FLOORS),
        description="minimum share of the compute for a waiting tier, whatever the weights, "
        "tier=share, separated by commas; tiers not named keep their default; at most 1 in sum, "
        "less than 1 if one is 0; the same in all routers",
    )


class RouterScaling(SettingsGroup):
    """What the needed replicas of a pool of workers are computed from (baton_needed_replicas)."""

    min_replicas: int = Field(
        1, ge=1, le=10_000, description="fewest replicas of a pool, unless it is idle"
    )
    max_replicas: int = Field(1_000, ge=1, le=10_000, description="most replicas of a pool")
    utilization: float = Field(
        0.7,
        gt=0,
        le=1,
        description="share of the learned prefill rate that arriving prompts may use",
    )
    occupancy: float = Field(
        0.8,
        gt=0,
        le=1,
        description="share of the KV pages, and of the batch whose steps meet the ITL target, to "
        "be used",
    )
    arrival_seconds: float = Field(
        30,
        ge=5,
        le=600,
        description="time over which arriving tokens are counted; the same in all routers",
    )
    backlog_seconds: float = Field(
        60,
        ge=1,
        le=3600,
        description="time in which prompts are to be computed that wait for longer than half of "
        "the TTFT target",
    )
    ttft_target_seconds: float = Field(
        2,
        gt=0,
        le=3600,
        description="time to first token that pools are sized for; a class with a lower TTFT "
        "target (baton classes) sets it",
    )
    hold_seconds: float = Field(
        600,
        ge=1,
        le=86_400,
        description="a pool gets smaller only if no need was higher for this long",
    )
    idle_seconds: float = Field(
        0,
        ge=0,
        le=604_800,
        description="a pool without requests for this long needs no replica, and the next request "
        "wakes it; 0: it always needs min_replicas",
    )


class RouterLimits(SettingsGroup):
    """Limits of frontends' queues, and timeouts of startup and shutdown."""

    max_answers: int = Field(
        1024,
        ge=64,
        le=1_000_000,
        description="maximum responses queued for a frontend; beyond it, the router stops reading "
        "that frontend's queries",
    )
    stall_seconds: float = Field(
        30,
        gt=0,
        le=3600,
        description="a frontend that reads no response for this long is disconnected",
    )
    ready_seconds: float = Field(
        2, ge=0, le=600, description="time to wait at startup for workers to report their load"
    )
    drain_notice_seconds: float = Field(
        0.3, ge=0, le=60, description="time for frontends to move to another router"
    )
    drain_flush_seconds: float = Field(
        2, ge=0, le=600, description="time for frontends to read the last responses"
    )


class WatchSettings(SettingsGroup):
    """The streams of load and KV events from each worker and store."""

    silence_seconds: float = Field(
        2,
        gt=0,
        le=600,
        description="silence after which a stream counts as broken; workers and stores send at "
        "least once a second",
    )
    retry_seconds: float = Field(
        1, gt=0, le=600, description="longest pause before a broken stream is reopened"
    )


class RecordingSettings(SettingsGroup):
    """Recordings of a router's inputs and decisions, which `baton simulate --replay` replays."""

    path: Path | None = Field(
        None,
        description="directory for recordings, one subdirectory per start of the router: tenants, "
        "keys of KV blocks, sizes and times, no text; none: nothing is recorded",
    )
    max_bytes: Bytes = Field(
        1024 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="maximum size of a recording; then recording stops and the router continues",
    )


class HistorySettings(SettingsGroup):
    """Ended requests that are kept on disk, for `baton route explain`."""

    path: Path | None = Field(
        None,
        description="directory on a local disk, kept across restarts, for failed and slow requests "
        "and a sample of the others; routers of a machine may share it; none: none are kept",
    )
    max_bytes: Bytes = Field(
        256 * MIB,
        ge=MIB,
        le=1024 * 1024 * MIB,
        description="maximum size of the kept requests; failed, slow and sampled ones have a third "
        "each, and the oldest are deleted",
    )
    max_seconds: float = Field(
        172_800,
        ge=60,
        le=31_536_000,
        description="age at which kept requests are deleted",
    )
