"""The groups that processes' settings are composed of."""

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from baton.settings.values import (
    Bytes,
    Cores,
    Endpoints,
    OtlpHeaders,
    PeerTransports,
    Port,
    TenantBytes,
    Transports,
)
from baton.transports import PEER_TRANSPORTS, TRANSPORTS

MIB = 1024 * 1024


class SettingsGroup(BaseModel):
    """A frozen group of settings; a name that it does not have is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class GrpcSettings(SettingsGroup):
    """The process's gRPC server."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(0, description="port to listen on; 0 takes a free one")
    reuse_port: bool = Field(
        False, description="share the port with processes that are set to share it too"
    )
    reflection: bool = Field(True, description="let tools list services and messages")
    max_concurrent: int = Field(
        10_000, ge=1, le=1_000_000, description="calls served at once; more are rejected"
    )
    max_message_bytes: Bytes = Field(
        4 * MIB, ge=64 * 1024, le=1024 * MIB, description="longest message received"
    )


class HttpSettings(SettingsGroup):
    """The frontend's HTTP server."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(8000, description="port to listen on; 0 takes a free one")
    reuse_port: bool = Field(
        False, description="share the port with processes that are set to share it too"
    )
    max_body_bytes: Bytes = Field(
        4 * MIB, ge=1024, le=1024 * MIB, description="longest request body"
    )
    header_timeout_seconds: float = Field(
        10, gt=0, le=600, description="time for a client to send a request's head"
    )
    body_timeout_seconds: float = Field(
        30, gt=0, le=3600, description="time for a client to send a request's body"
    )


class EtcdSettings(SettingsGroup):
    """The etcd that the cluster registers in."""

    endpoints: Endpoints = Field(
        ("127.0.0.1:2379",), description="etcd's addresses, host:port, separated by commas"
    )
    cluster: str = Field(
        "local",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of the cluster; clusters that share an etcd do not see each other",
    )
    lease_seconds: int = Field(
        5, ge=2, le=300, description="TTL of a member's lease; it is probed when the lease expires"
    )


class TelemetrySettings(SettingsGroup):
    """Logs, traces and metrics."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, JSON elsewhere"
    )
    otlp_endpoint: str = Field(
        "", description="OpenTelemetry collector, http://host:4317; empty: no traces are sent"
    )
    otlp_headers: OtlpHeaders = Field(
        SecretStr(""), description="headers sent to the collector, name=value, separated by commas"
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="share of new traces sampled; a caller's decision is kept"
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="address of /metrics")
    metrics_port: Port = Field(0, description="port of /metrics; 0 takes a free one")


class EngineSettings(SettingsGroup):
    """A worker's engine."""

    kind: Literal["torch", "sim"] = Field(
        "torch", description="torch computes the model, sim only takes the time that one would"
    )
    model: Path | None = Field(None, description="checkpoint directory (Hugging Face layout)")
    model_name: str = Field(
        "",
        pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9._-]{1,96})?$",
        description="name that clients request; empty: the directory's name",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="element type; auto takes the checkpoint's"
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    kv_bytes: Bytes = Field(
        512 * MIB, ge=64 * 1024, description="memory for the engine's own KV pages"
    )
    kv_idle_seconds: float = Field(
        30,
        ge=0,
        le=86400,
        description="KV that no request used for this long leaves the engine's pages if the store "
        "holds it, and is fetched again when needed; 0: never",
    )
    max_running: int = Field(64, ge=1, le=65536, description="sequences in one batch")
    max_waiting: int = Field(
        256, ge=0, le=1_000_000, description="sequences that may wait; more are rejected"
    )
    chunk_tokens: int = Field(
        512, ge=1, le=1_000_000, description="prompt tokens computed in one step, at most"
    )
    decode_chunk_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="the same for a step that also decodes, which it delays; 0: 32 on a decode "
        "worker, chunk_tokens elsewhere",
    )
    threads: int = Field(0, ge=0, le=4096, description="compute threads; 0: the library's choice")
    cores: Cores = Field(
        (), description="CPU cores to pin compute threads to, like 0,2-3; empty: not pinned"
    )
    native: Literal["auto", "off", "required"] = Field(
        "auto",
        description="compiled operators on CPU: auto takes them where they were built "
        "(python -m baton.engine.native.build), required builds them at start",
    )
    context_tokens: int = Field(
        0, ge=0, description="longest prompt plus output; 0: the checkpoint's"
    )
    sim_prefill_tokens_per_second: float = Field(
        20000, gt=0, description="sim: prompt tokens prefilled per second"
    )
    sim_decode_step_seconds: float = Field(0.005, ge=0, description="sim: one decode step")
    sim_decode_sequence_seconds: float = Field(
        0.0001, ge=0, description="sim: added to a decode step by each sequence in it"
    )
    sim_time_scale: float = Field(
        1.0, ge=0, description="sim: factor on all its times; 0 takes no time at all"
    )


def _arena_dir() -> Path:
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


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
