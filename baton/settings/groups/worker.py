"""Groups of workers."""

from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.transports import TRANSPORTS
from baton.settings.values import Bytes, Transports


class KvSettings(SettingsGroup):
    """A worker's use of the KV transfer service."""

    store_id: str = Field("", description="instance id of the worker's store; empty: the first one")
    transports: Transports = Field(
        TRANSPORTS, description="KV transports, best first; grpc works everywhere"
    )
    verify: Literal["always", "remote", "never"] = Field(
        "always",
        description="verify the digest of copies: all, those that crossed a network, or none (for "
        "experiments: corrupt KV gives wrong output)",
    )
    connect_seconds: float = Field(
        2,
        ge=0,
        le=600,
        description="time to wait for the store at startup; the worker then serves without it",
    )
    open_seconds: float = Field(
        3, gt=0, le=600, description="time for each step of attaching to the store"
    )
    retry_seconds: float = Field(
        2, gt=0, le=600, description="longest pause before attaching is tried again"
    )
    wait_seconds: float = Field(
        60,
        gt=0,
        le=3600,
        description="longest wait for KV that another worker computes; then it is computed here",
    )
    silence_seconds: float = Field(
        20,
        gt=0,
        le=600,
        description="silence of the store, beyond the wait, after which a fetch fails",
    )
    reserve_seconds: float = Field(
        5, gt=0, le=600, description="time for the store to reserve space for new KV"
    )
    commit_seconds: float = Field(
        15, gt=0, le=600, description="time for the store to commit new KV"
    )
    publish_batches: int = Field(
        4, ge=1, le=64, description="maximum batches of new KV in flight to the store"
    )
    staging_bytes: Bytes = Field(128 * MIB, ge=0, description="memory for KV in transit over gRPC")


class WorkerLimits(SettingsGroup):
    """Limits of frontends' queues, and timeouts of work and startup."""

    ready_seconds: float = Field(
        10,
        ge=0,
        le=600,
        description="time to wait at startup for every router to watch this worker; then it is "
        "ready without them",
    )
    default_deadline_seconds: float = Field(
        600, gt=0, le=604_800, description="deadline of work that arrives without one"
    )
    max_frames: int = Field(
        8192,
        ge=64,
        le=1_000_000,
        description="maximum messages queued for a frontend; beyond it, the frontend is "
        "disconnected",
    )


class LoadSettings(SettingsGroup):
    """The reports of its load that a worker sends to routers."""

    interval_seconds: float = Field(
        0.05,
        ge=0.001,
        le=10,
        description="minimum interval between reports of changes that placements depend on",
    )
    steady_seconds: float = Field(
        0.1, ge=0.001, le=10, description="minimum interval between reports of other changes"
    )
    heartbeat_seconds: float = Field(
        1, gt=0, le=60, description="a report is sent after this long without a change"
    )
