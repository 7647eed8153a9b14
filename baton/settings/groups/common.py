"""Groups used by every process, or by several."""

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
        0,
        description="port that other processes connect to, behind a proxy or a port mapping; 0: "
        "same as `port`",
    )
    reuse_port: bool = Field(
        False, description="share the port with other processes that also set this"
    )
    reflection: bool = Field(
        False, description="enable server reflection, so that tools can list services and messages"
    )
    max_concurrent: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum concurrent calls; the server rejects more. Health checks have their "
        "own limit",
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="maximum open connections; the server closes further ones at once",
    )
    max_streams_per_connection: int = Field(
        10_000, ge=1, le=1_000_000, description="maximum open calls on one connection"
    )
    max_message_bytes: Bytes = Field(
        4 * MIB, ge=64 * 1024, le=1024 * MIB, description="maximum size of a received message"
    )
    frame_seconds: float = Field(
        30,
        gt=0,
        le=3600,
        description="time for a client to send a whole frame, and a whole header block with all "
        "its frames",
    )
    reset_burst: int = Field(
        2000,
        ge=1,
        le=1_000_000,
        description="burst of calls that a client may cancel before the server has responded; "
        "max_streams_per_connection if that is more",
    )
    resets_per_second: float = Field(
        200,
        gt=0,
        le=1_000_000,
        description="sustained rate of such cancellations; above it the server closes the "
        "connection with ENHANCE_YOUR_CALM",
    )
    keepalive_seconds: float = Field(
        10,
        ge=1,
        le=7200,
        description="idle time after which the server pings a client; between processes of the "
        "cluster, `liveness` applies",
    )
    keepalive_timeout_seconds: float = Field(
        5,
        ge=0.1,
        le=600,
        description="time for a client to acknowledge that ping; then the server closes the "
        "connection",
    )


class LivenessSettings(SettingsGroup):
    """When another process of the cluster counts as lost, and its work fails over.

    Pauses of this process itself never count.
    """

    ping_seconds: float = Field(
        1, ge=0.1, le=600, description="silence after which a process of the cluster is pinged"
    )
    answer_seconds: float = Field(
        2, ge=0.1, le=600, description="time for it to answer the ping; then it counts as lost"
    )

    @property
    def patience_seconds(self) -> float:
        """Return the seconds of silence after which a process counts as gone."""
        return self.ping_seconds + self.answer_seconds


class TlsSettings(SettingsGroup):
    """Mutual TLS of all gRPC between processes of the cluster: all three files, or none."""

    cert: Path | None = Field(
        None,
        description="file with this process's certificate chain, in PEM; the certificate names "
        "the process's role; none: plain text",
    )
    key: Path | None = Field(
        None,
        description="file with the private key of that certificate, in PEM, without a password",
    )
    ca: Path | None = Field(
        None,
        description="file with the certificate authorities that must have signed the certificates "
        "of all other processes",
    )
    trust_domain: str = Field(
        "baton",
        pattern=r"^[a-z0-9][a-z0-9.-]{0,252}$",
        description="trust domain of the role names in certificates: DNS name ROLE.DOMAIN or "
        "spiffe://DOMAIN/…/ROLE",
    )
    check_seconds: float = Field(
        2,
        ge=0.05,
        le=3600,
        description="interval at which certificate files are checked for changes, public ones "
        "included; new connections use the new files",
    )


class ClusterSettings(SettingsGroup):
    """Models whose workers come and go."""

    model_keep_seconds: int = Field(
        0,
        ge=0,
        le=366 * 86400,
        description="a model stays known for this long after its last worker left: frontends list "
        "it, and its requests wait for a worker to start. 0: it does not. Workers use this",
    )
    model_start_seconds: float = Field(
        600,
        ge=0,
        le=86400,
        description="longest time that a request for such a model waits for a worker to start, "
        "within its deadline. Frontends use this",
    )


class EtcdSettings(SettingsGroup):
    """The etcd that the cluster registers in."""

    endpoints: Endpoints = Field(
        ("127.0.0.1:2379",),
        description="host:port of etcd's members, names or addresses, separated by commas",
    )
    cert: Path | None = Field(
        None, description="file with the client certificate for etcd; none: that of `tls`"
    )
    key: Path | None = Field(None, description="file with the private key of that certificate")
    ca: Path | None = Field(
        None,
        description="file with the certificate authorities that must have signed etcd's "
        "certificate",
    )
    plaintext: bool = Field(
        False, description="connect to etcd in plain text even if certificates are set"
    )
    cluster: str = Field(
        "local",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of the cluster; clusters that share an etcd do not see each other",
    )
    lease_seconds: int = Field(
        5,
        ge=2,
        le=300,
        description="TTL of a member's lease; when the lease expires, the member is probed",
    )
    timeout_seconds: float = Field(3, gt=0, le=600, description="timeout of a request to etcd")
    relist_seconds: float = Field(
        30,
        gt=0,
        le=86400,
        description="interval at which all records are read again, in addition to the watch",
    )
    probe_seconds: float = Field(
        1, gt=0, le=60, description="time for a suspect instance to answer a probe"
    )
    reprobe_seconds: float = Field(
        1, gt=0, le=600, description="interval between probes of an instance that has not answered"
    )
    enter_seconds: float = Field(
        1,
        gt=0,
        le=600,
        description="time to wait for etcd at startup; registration then continues in the "
        "background",
    )
    exit_seconds: float = Field(
        2, gt=0, le=600, description="time to remove the record at shutdown"
    )


class OpsSettings(SettingsGroup):
    """The plain HTTP port for probes and metrics: /livez, /readyz and /metrics."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port = Field(0, description="port to listen on; 0 takes a free one")
    stuck_seconds: float = Field(
        30,
        ge=1,
        le=3600,
        description="/livez fails once the event loop is blocked, or an engine step takes, longer "
        "than this",
    )


class TelemetrySettings(SettingsGroup):
    """Logs, traces and metrics."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="log format; auto: console on a terminal, otherwise JSON"
    )
    otlp_endpoint: str = Field(
        "", description="OpenTelemetry collector, http://host:4317; empty: traces are not exported"
    )
    otlp_headers: OtlpHeaders = Field(
        SecretStr(""), description="headers sent to the collector, name=value, separated by commas"
    )
    otlp_timeout_seconds: float = Field(
        2, gt=0, le=600, description="timeout of one export of spans"
    )
    otlp_interval_seconds: float = Field(
        0.5, gt=0, le=600, description="longest time that a span waits to be exported in a batch"
    )
    otlp_queue_spans: int = Field(
        4096, ge=1, le=1_000_000, description="maximum queued spans; further ones are dropped"
    )
    otlp_flush_seconds: float = Field(
        3, ge=0, le=600, description="time to export the remaining spans at shutdown"
    )
    sample_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of new traces that are sampled; a caller's decision is kept",
    )
    tail_spans: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="maximum spans of traces that are not sampled, held until their request ends: "
        "a frontend exports its spans of those that failed or were slow; 0: it does not",
    )


class EventSettings(SettingsGroup):
    """The stream of KV events that routers watch."""

    flush_seconds: float = Field(
        0.01,
        gt=0,
        le=10,
        description="minimum interval between messages to a router, for blocks that placements "
        "wait for",
    )
    steady_seconds: float = Field(
        0.1, gt=0, le=10, description="minimum interval between messages for other blocks"
    )
    heartbeat_seconds: float = Field(
        1, gt=0, le=60, description="a message is sent after this long without a change"
    )
