"""Settings: frozen, composed of groups; from flags, the environment, files and defaults.

Every process takes one class of `baton.settings.processes`. A setting that is wrong stops the
process with a sentence that names it, says what it may be and where to change it.
"""

from baton.settings.describe import Setting, describe
from baton.settings.groups import (
    AuthSettings,
    EngineSettings,
    EtcdSettings,
    EventSettings,
    FrontendLimits,
    FrontendPlacement,
    GrpcSettings,
    HttpSettings,
    KvSettings,
    LivenessSettings,
    LoadSettings,
    OpsSettings,
    PeerSettings,
    PublicSettings,
    RouterLimits,
    RouterPlacement,
    StoreLimits,
    StoreSettings,
    TelemetrySettings,
    TlsSettings,
    WatchSettings,
    WorkerConnectionSettings,
    WorkerLimits,
)
from baton.settings.load import Loaded, load, load_with_sources
from baton.settings.names import SettingName, fields_of
from baton.settings.processes import (
    SERVICE_SETTINGS,
    DecodeSettings,
    FrontendSettings,
    KvStoreSettings,
    PrefillSettings,
    ProcessSettings,
    RouterSettings,
    WorkerSettings,
)
from baton.settings.sources import StartupError, misspelled

__all__ = [
    "SERVICE_SETTINGS",
    "AuthSettings",
    "DecodeSettings",
    "EngineSettings",
    "EtcdSettings",
    "EventSettings",
    "FrontendLimits",
    "FrontendPlacement",
    "FrontendSettings",
    "GrpcSettings",
    "HttpSettings",
    "KvSettings",
    "KvStoreSettings",
    "LivenessSettings",
    "LoadSettings",
    "Loaded",
    "OpsSettings",
    "PeerSettings",
    "PrefillSettings",
    "ProcessSettings",
    "PublicSettings",
    "RouterLimits",
    "RouterPlacement",
    "RouterSettings",
    "Setting",
    "SettingName",
    "StartupError",
    "StoreLimits",
    "StoreSettings",
    "TelemetrySettings",
    "TlsSettings",
    "WatchSettings",
    "WorkerConnectionSettings",
    "WorkerLimits",
    "WorkerSettings",
    "describe",
    "fields_of",
    "load",
    "load_with_sources",
    "misspelled",
]
