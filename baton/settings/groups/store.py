"""Groups of the KV store."""

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, PeerTransports, TenantBytes
from baton.transports import PEER_TRANSPORTS


def _arena_dir() -> Path:
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


class StoreSettings(SettingsGroup):
    """A KV store."""

    arena_bytes: Bytes = Field(512 * MIB, ge=1 * MIB, description="memory for KV objects")
    arena_dir: Path = Field(
        default_factory=_arena_dir,
        description="directory of the arena's file; unset: /dev/shm where it can be written to, "
        "else the one for temporary files",
    )
    disk_bytes: Bytes = Field(
        0, ge=0, description="disk for KV objects evicted from memory; 0: no disk tier"
    )
    disk_path: Path | None = Field(
        None, description="the file for them, kept across restarts; needed with disk_bytes"
    )
    disk_stall_seconds: float = Field(
        5, gt=0, le=600, description="a disk that does not answer for so long is switched off"
    )
    disk_max_errors: int = Field(
        3,
        ge=1,
        le=1000,
        description="failed reads and writes within a minute after which the disk is switched off",
    )
    disk_retry_seconds: float = Field(
        1,
        gt=0,
        le=600,
        description="first pause before a disk that failed is tried again; it doubles",
    )
    disk_max_retry_seconds: float = Field(30, gt=0, le=86_400, description="longest such pause")
    tenant_bytes: TenantBytes = Field(
        {},
        description="most bytes that a tenant may hold in a tier, name=bytes, separated by commas; "
        "others share the rest; what the tenant's record in etcd says wins",
    )
    drain_quiet_seconds: float = Field(
        2,
        ge=0,
        le=600,
        description="after SIGTERM the store serves on until nothing was read or written for so "
        "long, within drain_seconds",
    )
    reservation_seconds: float = Field(
        10, gt=0, le=3600, description="time for a writer to commit what it reserved"
    )
    lease_seconds: float = Field(
        10, gt=0, le=3600, description="time for a reader to copy what it was leased"
    )
    peer_transports: PeerTransports = Field(
        PEER_TRANSPORTS,
        description="KV transports between stores, best first; nixl where it is installed and "
        "works, and beside tls only if it is set here, for it is not encrypted; grpc everywhere",
    )
    verify: Literal["always", "never"] = Field(
        "always",
        description="objects from other stores and from disk to check against their digest (never "
        "is for experiments: corrupt KV gives wrong answers)",
    )


class StoreLimits(SettingsGroup):
    """What clients may hold, and how long they may take."""

    max_sessions: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="attached clients; then the one that did nothing for longest attaches anew",
    )
    max_reads: int = Field(
        4096, ge=1, le=1_000_000, description="reads of one client at a time; more are refused"
    )
    max_wait_seconds: float = Field(
        3600, gt=0, le=86_400, description="longest wait for an object that a client may ask for"
    )
    open_seconds: float = Field(
        10, gt=0, le=600, description="time for a new stream to say who it is"
    )
    linger_seconds: float = Field(
        5, gt=0, le=600, description="time for a client that has said all to read its last answers"
    )


class PeerSettings(SettingsGroup):
    """Transfers from other stores."""

    max_peers: int = Field(
        256, ge=1, le=65_536, description="connections; nothing is fetched from a further store"
    )
    idle_seconds: float = Field(
        30,
        gt=0,
        le=86_400,
        description="a connection without anything to fetch is closed after so long",
    )
    open_seconds: float = Field(3, gt=0, le=600, description="time for each step of connecting")
    retry_seconds: float = Field(
        2, gt=0, le=600, description="longest pause before connecting is tried again"
    )
    probe_seconds: float = Field(
        1, gt=0, le=60, description="time to see whether a lost store's process is gone"
    )
    stall_seconds: float = Field(
        5,
        gt=0,
        le=600,
        description="gRPC: without data for so long, other stores may bring the same objects",
    )
    nixl_answer_seconds: float = Field(
        2,
        gt=0,
        le=600,
        description="NIXL: objects wait so long for the first answer, then come over gRPC",
    )
    nixl_push_seconds: float = Field(
        2, gt=0, le=600, description="NIXL: time for a push, beside 1 s per 16 MiB under way"
    )
    nixl_retry_seconds: float = Field(
        2, gt=0, le=600, description="NIXL: first pause before it is tried again; it doubles"
    )
    nixl_max_retry_seconds: float = Field(60, gt=0, le=86_400, description="NIXL: longest pause")
