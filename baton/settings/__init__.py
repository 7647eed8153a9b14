"""Settings: frozen, composed of groups; a flag wins over the environment, that over the default.

Every process takes one class of `baton.settings.processes`. A setting that is wrong stops the
process with a sentence that names it, says what it may be and where to change it.
"""

from baton.settings.describe import Setting, describe, fields_of
from baton.settings.groups import (
    EngineSettings,
    EtcdSettings,
    GrpcSettings,
    HttpSettings,
    KvSettings,
    StoreSettings,
    TelemetrySettings,
)
from baton.settings.load import StartupError, load, misspelled
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

__all__ = [
    "SERVICE_SETTINGS",
    "DecodeSettings",
    "EngineSettings",
    "EtcdSettings",
    "FrontendSettings",
    "GrpcSettings",
    "HttpSettings",
    "KvSettings",
    "KvStoreSettings",
    "PrefillSettings",
    "ProcessSettings",
    "RouterSettings",
    "Setting",
    "StartupError",
    "StoreSettings",
    "TelemetrySettings",
    "WorkerSettings",
    "describe",
    "fields_of",
    "load",
    "misspelled",
]
