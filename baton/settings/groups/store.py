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
        default_factory=_arena_dir, description="where the arena's file is mapped from"
    )
    disk_bytes: Bytes = Field(
        0, ge=0, description="disk for KV objects evicted from memory; 0: no disk tier"
    )
    disk_path: Path | None = Field(
        None, description="the file for them, kept across restarts; needed with disk_bytes"
    )
    tenant_bytes: TenantBytes = Field(
        {},
        description="most bytes that a tenant may hold in a tier, name=bytes, separated by commas; "
        "others share the rest",
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
        "works, grpc everywhere",
    )
    verify: Literal["always", "never"] = Field(
        "always",
        description="objects from other stores and from disk to check against their digest (never "
        "is for experiments: corrupt KV gives wrong answers)",
    )
