"""Groups of the KV store."""

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.transports import PEER_TRANSPORTS
from baton.settings.values import Bytes, PeerTransports, TenantBytes


def _arena_dir() -> Path:
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


class StoreSettings(SettingsGroup):
    """A KV store."""

    arena_bytes: Bytes = Field(512 * MIB, ge=1 * MIB, description="memory for KV objects")
    arena_dir: Path = Field(
        default_factory=_arena_dir,
        description="directory of the arena's file; unset: /dev/shm if it is writable, otherwise "
        "the directory for temporary files",
    )
    disk_bytes: Bytes = Field(
        0, ge=0, description="disk space for KV objects evicted from memory; 0: no disk tier"
    )
    disk_path: Path | None = Field(
        None, description="file of the disk tier, kept across restarts; required with disk_bytes"
    )
    disk_stall_seconds: float = Field(
        5, gt=0, le=600, description="time without a response after which the disk tier is disabled"
    )
    disk_max_errors: int = Field(
        3,
        ge=1,
        le=1000,
        description="failed reads and writes within a minute after which the disk tier is disabled",
    )
    disk_retry_seconds: float = Field(
        1,
        gt=0,
        le=600,
        description="initial pause before a failed disk is tried again; it doubles",
    )
    disk_max_retry_seconds: float = Field(30, gt=0, le=86_400, description="longest such pause")
    tenant_bytes: TenantBytes = Field(
        {},
        description="maximum bytes of a tenant in a tier, name=bytes, separated by commas; other "
        "tenants share the rest; the tenant's record in etcd takes precedence",
    )
    drain_quiet_seconds: float = Field(
        2,
        ge=0,
        le=600,
        description="after SIGTERM the store keeps serving until it has been idle for this long, "
        "within drain_seconds",
    )
    reservation_seconds: float = Field(
        10, gt=0, le=3600, description="time for a writer to commit a reservation"
    )
    lease_seconds: float = Field(
        10, gt=0, le=3600, description="time for a reader to copy a leased object"
    )
    peer_transports: PeerTransports = Field(
        PEER_TRANSPORTS,
        description="KV transports between stores, best first; nixl where it is installed and "
        "works, and with tls only if it is set here, because it is not encrypted; grpc works "
        "everywhere",
    )
    verify: Literal["always", "never"] = Field(
        "always",
        description="verify the digest of objects from other stores and from disk (never is for "
        "experiments: corrupt KV gives wrong output)",
    )


class StoreLimits(SettingsGroup):
    """Limits of clients, and timeouts."""

    max_sessions: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="maximum attached clients; beyond it, the one that was idle for longest must "
        "attach again",
    )
    max_reads: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="maximum concurrent reads of one client; further ones are rejected",
    )
    max_wait_seconds: float = Field(
        3600, gt=0, le=86_400, description="longest wait for an object that a client may request"
    )
    open_seconds: float = Field(
        10, gt=0, le=600, description="time for a client to identify itself on a new stream"
    )
    linger_seconds: float = Field(
        5,
        gt=0,
        le=600,
        description="time for a client that has closed its side to read its last responses",
    )


class PeerSettings(SettingsGroup):
    """Transfers from other stores."""

    max_peers: int = Field(
        256,
        ge=1,
        le=65_536,
        description="maximum connections to other stores; nothing is fetched from further stores",
    )
    idle_seconds: float = Field(
        30,
        gt=0,
        le=86_400,
        description="an idle connection is closed after this long",
    )
    open_seconds: float = Field(3, gt=0, le=600, description="time for each step of connecting")
    retry_seconds: float = Field(
        2, gt=0, le=600, description="longest pause before connecting is tried again"
    )
    probe_seconds: float = Field(
        1, gt=0, le=60, description="time to find out whether the process of a lost store has ended"
    )
    stall_seconds: float = Field(
        5,
        gt=0,
        le=600,
        description="gRPC: time without data after which the same objects may be fetched from "
        "other stores",
    )
    nixl_answer_seconds: float = Field(
        2,
        gt=0,
        le=600,
        description="NIXL: time for the first response; then the objects are fetched over gRPC",
    )
    nixl_push_seconds: float = Field(
        2, gt=0, le=600, description="NIXL: time for a push, plus 1 s per 16 MiB in flight"
    )
    nixl_retry_seconds: float = Field(
        2, gt=0, le=600, description="NIXL: initial pause before it is tried again; it doubles"
    )
    nixl_max_retry_seconds: float = Field(60, gt=0, le=86_400, description="NIXL: longest pause")
