"""One class of settings per process."""

from typing import Annotated, Literal

from pydantic import Field

from baton.settings.groups import (
    AdapterSettings,
    AuthSettings,
    AutoSettings,
    BatchSettings,
    ClusterSettings,
    ConversationSettings,
    EngineSettings,
    EtcdSettings,
    EventSettings,
    FileSettings,
    FrontendLimits,
    FrontendPlacement,
    GrpcSettings,
    HistorySettings,
    HttpSettings,
    KeepSettings,
    KvSettings,
    LivenessSettings,
    LoadSettings,
    OpsSettings,
    PeerSettings,
    PickingSettings,
    ProviderSettings,
    PublicSettings,
    RecordingSettings,
    RouterLimits,
    RouterPlacement,
    RouterQueue,
    RouterScaling,
    SettingsGroup,
    StateSettings,
    StoreLimits,
    StoreSettings,
    TeamSettings,
    TelemetrySettings,
    TextSettings,
    TlsSettings,
    UsageSettings,
    WatchSettings,
    WebhookSettings,
    WorkerConnectionSettings,
    WorkerLimits,
)
from baton.settings.values import Port

_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,128}$")]


class ProcessSettings(SettingsGroup):
    """The settings that every process has.

    `BATON_GRPC_PORT` is `grpc.port`: the group is the part before the first underscore.
    """

    instance_id: _Id = Field("", description="id in the cluster; empty: role and random letters")
    drain_seconds: float = Field(
        10, ge=0, le=3600, description="time for running work to finish after SIGTERM"
    )
    close_seconds: float = Field(
        5, gt=0, le=600, description="time to stop after the drain; then the process exits"
    )
    advertise_host: str = Field(
        "", description="host that other processes connect to; empty: the listening address"
    )
    grpc: GrpcSettings = GrpcSettings()
    etcd: EtcdSettings = EtcdSettings()
    liveness: LivenessSettings = LivenessSettings()
    ops: OpsSettings = OpsSettings()
    tls: TlsSettings = TlsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()


class FrontendSettings(ProcessSettings):
    """The process that serves clients."""

    drain_seconds: float = Field(
        20, ge=0, le=3600, description="time for running work to finish after SIGTERM"
    )
    health_port: Port = Field(
        0,
        description="port of the cluster's gRPC health checks if clients or processes use "
        "certificates; 0 takes a free one",
    )
    grpc: GrpcSettings = GrpcSettings(port=50051)
    http: HttpSettings = HttpSettings()
    public: PublicSettings = PublicSettings()
    auth: AuthSettings = AuthSettings()
    text: TextSettings = TextSettings()
    cluster: ClusterSettings = ClusterSettings()
    limits: FrontendLimits = FrontendLimits()
    placement: FrontendPlacement = FrontendPlacement()
    workers: WorkerConnectionSettings = WorkerConnectionSettings()
    providers: ProviderSettings = ProviderSettings()
    adapters: AdapterSettings = AdapterSettings()
    usage: UsageSettings = UsageSettings()
    state: StateSettings = StateSettings()
    conversations: ConversationSettings = ConversationSettings()
    files: FileSettings = FileSettings()
    batches: BatchSettings = BatchSettings()
    webhooks: WebhookSettings = WebhookSettings()
    history: KeepSettings = KeepSettings()
    teams: TeamSettings = TeamSettings()
    auto: AutoSettings = AutoSettings()


class RouterSettings(ProcessSettings):
    """The process that places requests."""

    limits: RouterLimits = RouterLimits()
    placement: RouterPlacement = RouterPlacement()
    queue: RouterQueue = RouterQueue()
    scaling: RouterScaling = RouterScaling()
    watch: WatchSettings = WatchSettings()
    recording: RecordingSettings = RecordingSettings()
    history: HistorySettings = HistorySettings()


class WorkerSettings(ProcessSettings):
    """A process that runs an engine."""

    role: Literal["prefill", "decode", "combined"] = Field(
        "combined", description="what the worker does; combined: prefill and decode"
    )
    cluster: ClusterSettings = ClusterSettings()
    engine: EngineSettings = EngineSettings()
    kv: KvSettings = KvSettings()
    limits: WorkerLimits = WorkerLimits()
    load: LoadSettings = LoadSettings()
    events: EventSettings = EventSettings()


class PrefillSettings(WorkerSettings):
    """A prefill worker, unless `role` says otherwise."""

    role: Literal["prefill", "decode", "combined"] = Field(
        "prefill", description="what the worker does; combined: prefill and decode"
    )


class DecodeSettings(WorkerSettings):
    """A decode worker, unless `role` says otherwise."""

    role: Literal["prefill", "decode", "combined"] = Field(
        "decode", description="what the worker does; combined: prefill and decode"
    )


class KvStoreSettings(ProcessSettings):
    """The KV transfer service."""

    store: StoreSettings = StoreSettings()
    peers: PeerSettings = PeerSettings()
    limits: StoreLimits = StoreLimits()
    events: EventSettings = EventSettings()


class PickerSettings(ProcessSettings):
    """The process that tells gateways which frontend gets a request."""

    grpc: GrpcSettings = GrpcSettings(port=9002)
    public: PublicSettings = PublicSettings()
    auth: AuthSettings = AuthSettings()
    picking: PickingSettings = PickingSettings()


SERVICE_SETTINGS: dict[str, type[ProcessSettings]] = {
    "frontend": FrontendSettings,
    "router": RouterSettings,
    "prefill": PrefillSettings,
    "decode": DecodeSettings,
    "kvstore": KvStoreSettings,
    "picker": PickerSettings,
}
"""The settings class of each service; together they have all settings."""
