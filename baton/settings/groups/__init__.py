"""The groups that processes' settings are composed of."""

from baton.settings.groups.base import SettingsGroup
from baton.settings.groups.common import (
    EtcdSettings,
    EventSettings,
    GrpcSettings,
    TelemetrySettings,
)
from baton.settings.groups.engine import EngineSettings
from baton.settings.groups.frontend import (
    FrontendLimits,
    FrontendPlacement,
    HttpSettings,
    WorkerConnectionSettings,
)
from baton.settings.groups.router import RouterLimits, RouterPlacement, WatchSettings
from baton.settings.groups.store import PeerSettings, StoreLimits, StoreSettings
from baton.settings.groups.worker import KvSettings, LoadSettings, WorkerLimits

__all__ = [
    "EngineSettings",
    "EtcdSettings",
    "EventSettings",
    "FrontendLimits",
    "FrontendPlacement",
    "GrpcSettings",
    "HttpSettings",
    "KvSettings",
    "LoadSettings",
    "PeerSettings",
    "RouterLimits",
    "RouterPlacement",
    "SettingsGroup",
    "StoreLimits",
    "StoreSettings",
    "TelemetrySettings",
    "WatchSettings",
    "WorkerConnectionSettings",
    "WorkerLimits",
]
