"""Groups of workers."""

from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, Transports
from baton.transports import TRANSPORTS


class KvSettings(SettingsGroup):
    """A worker's use of the KV transfer service."""

    store_id: str = Field("", description="instance id of the worker's store; empty: the first one")
    transports: Transports = Field(
        TRANSPORTS, description="KV transports, best first; grpc works everywhere"
    )
    verify: Literal["always", "remote", "never"] = Field(
        "always",
        description="copies to check against their digest: all, those that crossed a network, "
        "none (for experiments: corrupt KV gives wrong answers)",
    )
    connect_seconds: float = Field(
        2, ge=0, le=600, description="wait for the store at the start; the worker serves without it"
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
        description="a fetch ends when the store was silent for so long beyond the wait",
    )
    reserve_seconds: float = Field(
        5, gt=0, le=600, description="time for the store to reserve room for new KV"
    )
    commit_seconds: float = Field(
        15, gt=0, le=600, description="time for the store to commit new KV"
    )
    publish_batches: int = Field(
        4, ge=1, le=64, description="batches of new KV on their way to the store at a time"
    )
    staging_bytes: Bytes = Field(
        128 * MIB, ge=0, description="memory kept for KV on its way over gRPC"
    )


class WorkerLimits(SettingsGroup):
    """What frontends may leave waiting, and how long work and starting may take."""

    ready_seconds: float = Field(
        10,
        ge=0,
        le=600,
        description="wait at the start for every router to watch this worker; then it is ready "
        "without",
    )
    default_deadline_seconds: float = Field(
        600, gt=0, le=604_800, description="deadline of work that came without one"
    )
    max_frames: int = Field(
        8192,
        ge=64,
        le=1_000_000,
        description="messages that wait for a frontend; one with more is cut off",
    )


class LoadSettings(SettingsGroup):
    """The reports of its load that a worker sends to routers."""

    interval_seconds: float = Field(
        0.05,
        ge=0.001,
        le=10,
        description="least time between reports of changes that placements depend on",
    )
    steady_seconds: float = Field(
        0.1, ge=0.001, le=10, description="least time between reports of other changes"
    )
    heartbeat_seconds: float = Field(
        1, gt=0, le=60, description="a report is sent after so long without a change"
    )
