"""Groups of every process, and of several."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, Endpoints, OtlpHeaders, Port


class GrpcSettings(SettingsGroup):
    """The process's gRPC server."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(0, description="port to listen on; 0 takes a free one")
    advertise_port: Port = Field(
        0, description="port at which others reach it, by a proxy or a mapping; 0: the same"
    )
    reuse_port: bool = Field(
        False, description="share the port with processes that are set to share it too"
    )
    reflection: bool = Field(False, description="let tools list services and messages")
    max_concurrent: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="calls served at once; more are rejected. Those of health count by themselves",
    )
    max_connections: int = Field(
        10_000, ge=1, le=1_000_000, description="connections at once; more are closed at once"
    )
    max_streams_per_connection: int = Field(
        10_000, ge=1, le=1_000_000, description="calls open at once on one connection"
    )
    max_message_bytes: Bytes = Field(
        4 * MIB, ge=64 * 1024, le=1024 * MIB, description="longest message received"
    )
    frame_seconds: float = Field(
        30,
        gt=0,
        le=3600,
        description="time for a client to send a frame, and a header block with all its frames",
    )
    reset_burst: int = Field(
        2000,
        ge=1,
        le=1_000_000,
        description="calls that a client may cancel before it has an answer, at once, and no fewer "
        "than max_streams_per_connection",
    )
    resets_per_second: float = Field(
        200,
        gt=0,
        le=1_000_000,
        description="and in the long run; more end their connection with ENHANCE_YOUR_CALM",
    )
    keepalive_seconds: float = Field(
        10,
        ge=1,
        le=7200,
        description="a client that was silent for so long is pinged; processes of the cluster keep "
        "an eye on each other by liveness",
    )
    keepalive_timeout_seconds: float = Field(
        5, ge=0.1, le=600, description="and is closed where no answer comes within this"
    )


class LivenessSettings(SettingsGroup):
    """When another process of the cluster counts as gone, and what runs there goes on elsewhere.

    A pause of this process itself never counts.
    """

    ping_seconds: float = Field(
        1, ge=0.1, le=600, description="a process that has sent nothing for so long is pinged"
    )
    answer_seconds: float = Field(
        2, ge=0.1, le=600, description="and counts as gone where no answer comes within this"
    )

    @property
    def patience_seconds(self) -> float:
        """Return after how many seconds of silence a process counts as gone."""
        return self.ping_seconds + self.answer_seconds


class TlsSettings(SettingsGroup):
    """Mutual TLS of all gRPC between processes of the cluster: all three files, or none."""

    cert: Path | None = Field(
        None,
        description="file with this process's certificate chain, in PEM; it names the process's "
        "role; none: plain text",
    )
    key: Path | None = Field(
        None, description="file with that certificate's private key, in PEM, without a password"
    )
    ca: Path | None = Field(
        None,
        description="file with the authorities, one or several, that must have signed the "
        "certificate of every other process",
    )
    trust_domain: str = Field(
        "baton",
        pattern=r"^[a-z0-9][a-z0-9.-]{0,252}$",
        description="roles are named in it: DNS name ROLE.DOMAIN or spiffe://DOMAIN/…/ROLE",
    )
    check_seconds: float = Field(
        2,
        ge=0.05,
        le=3600,
        description="files of certificates are looked at this often, the public ones too; new "
        "ones serve new connections",
    )


class EtcdSettings(SettingsGroup):
    """The etcd that the cluster registers in."""

    endpoints: Endpoints = Field(
        ("127.0.0.1:2379",),
        description="host:port of etcd's members, names or addresses, separated by commas",
    )
    cert: Path | None = Field(
        None, description="file with the certificate that etcd sees; none: the one of `tls`"
    )
    key: Path | None = Field(None, description="file with that certificate's private key")
    ca: Path | None = Field(
        None, description="file with the authorities that must have signed etcd's certificate"
    )
    plaintext: bool = Field(
        False, description="speak plain text to etcd although certificates are set"
    )
    cluster: str = Field(
        "local",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of the cluster; clusters that share an etcd do not see each other",
    )
    lease_seconds: int = Field(
        5, ge=2, le=300, description="TTL of a member's lease; it is probed when the lease expires"
    )
    timeout_seconds: float = Field(3, gt=0, le=600, description="time for etcd to answer a request")
    relist_seconds: float = Field(
        30, gt=0, le=86400, description="all records are read again this often, beside the watch"
    )
    probe_seconds: float = Field(
        1, gt=0, le=60, description="time for an instance that is suspect to answer a probe"
    )
    reprobe_seconds: float = Field(
        1, gt=0, le=600, description="between two probes of an instance that is not back yet"
    )
    enter_seconds: float = Field(
        1, gt=0, le=600, description="wait for etcd at the start; registering goes on after it"
    )
    exit_seconds: float = Field(
        2, gt=0, le=600, description="time to remove the record when the process stops"
    )


class OpsSettings(SettingsGroup):
    """The plain HTTP port for probes and metrics: /livez, /readyz and /metrics."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(0, description="port to listen on; 0 takes a free one")
    stuck_seconds: float = Field(
        30,
        ge=1,
        le=3600,
        description="/livez fails once the event loop has not run, or a step of the engine has "
        "run, for longer",
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
    otlp_timeout_seconds: float = Field(
        2, gt=0, le=600, description="time for the collector to take one batch of spans"
    )
    otlp_interval_seconds: float = Field(
        0.5, gt=0, le=600, description="spans wait so long for others to be sent with"
    )
    otlp_queue_spans: int = Field(
        4096, ge=1, le=1_000_000, description="spans that may wait; more are dropped"
    )
    otlp_flush_seconds: float = Field(
        3, ge=0, le=600, description="time to send what is left when the process stops"
    )
    sample_ratio: float = Field(
        1.0, ge=0, le=1, description="share of new traces sampled; a caller's decision is kept"
    )


class EventSettings(SettingsGroup):
    """The stream of KV events that routers watch."""

    flush_seconds: float = Field(
        0.01,
        gt=0,
        le=10,
        description="least time between messages to a router, for blocks that placements wait for",
    )
    steady_seconds: float = Field(
        0.1, gt=0, le=10, description="least time between messages where none waits"
    )
    heartbeat_seconds: float = Field(
        1, gt=0, le=60, description="a message is sent after so long without a change"
    )
