"""The groups that make up processes' settings."""

from baton.settings.groups.base import SettingsGroup
from baton.settings.groups.batches import BatchSettings, FileSettings
from baton.settings.groups.common import (
    ClusterSettings,
    EtcdSettings,
    EventSettings,
    GrpcSettings,
    LivenessSettings,
    OpsSettings,
    TelemetrySettings,
    TlsSettings,
)
from baton.settings.groups.conversations import ConversationSettings
from baton.settings.groups.engine import EngineSettings
from baton.settings.groups.frontend import (
    AdapterSettings,
    AuthSettings,
    AutoSettings,
    FrontendLimits,
    FrontendPlacement,
    HttpSettings,
    KeepSettings,
    ProviderSettings,
    PublicSettings,
    TeamSettings,
    TextSettings,
    WorkerConnectionSettings,
)
from baton.settings.groups.kafka import KafkaSettings
from baton.settings.groups.picker import PickingSettings
from baton.settings.groups.router import (
    HistorySettings,
    RecordingSettings,
    RouterLimits,
    RouterPlacement,
    RouterQueue,
    RouterScaling,
    WatchSettings,
)
from baton.settings.groups.state import StateSettings
from baton.settings.groups.store import PeerSettings, StoreLimits, StoreSettings
from baton.settings.groups.usage import UsageSettings
from baton.settings.groups.webhooks import WebhookSettings
from baton.settings.groups.worker import KvSettings, LoadSettings, WorkerLimits

__all__ = [
    "AdapterSettings",
    "AuthSettings",
    "AutoSettings",
    "BatchSettings",
    "ClusterSettings",
    "ConversationSettings",
    "EngineSettings",
    "EtcdSettings",
    "EventSettings",
    "FileSettings",
    "FrontendLimits",
    "FrontendPlacement",
    "GrpcSettings",
    "HistorySettings",
    "HttpSettings",
    "KafkaSettings",
    "KeepSettings",
    "KvSettings",
    "LivenessSettings",
    "LoadSettings",
    "OpsSettings",
    "PeerSettings",
    "PickingSettings",
    "ProviderSettings",
    "PublicSettings",
    "RecordingSettings",
    "RouterLimits",
    "RouterPlacement",
    "RouterQueue",
    "RouterScaling",
    "SettingsGroup",
    "StateSettings",
    "StoreLimits",
    "StoreSettings",
    "TeamSettings",
    "TelemetrySettings",
    "TextSettings",
    "TlsSettings",
    "UsageSettings",
    "WatchSettings",
    "WebhookSettings",
    "WorkerConnectionSettings",
    "WorkerLimits",
]
