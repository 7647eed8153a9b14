"""Refuses settings before anything is started, in the words that the process itself would use."""

from baton.cli.errors import CommandError
from baton.cli.local.plan import Spec
from baton.settings import (
    DecodeSettings,
    FrontendSettings,
    KvStoreSettings,
    PrefillSettings,
    ProcessSettings,
    RouterSettings,
    StartupError,
    fields_of,
    load,
)

SETTINGS: dict[str, type[ProcessSettings]] = {
    "frontend": FrontendSettings,
    "router": RouterSettings,
    "prefill": PrefillSettings,
    "decode": DecodeSettings,
    "kvstore": KvStoreSettings,
}
"""Each service's settings."""


def settings_of(spec: Spec) -> ProcessSettings:
    """The settings that a process will have, from this environment and its own.

    Raises:
        CommandError: a setting is wrong; the text names it and what it may be.
    """
    settings_type = SETTINGS[spec.service]
    flags = {name.env: name.flag for name in fields_of(settings_type)}
    arguments = []
    for variable, value in spec.settings.items():
        if variable in flags:
            arguments.append(f"{flags[variable]}={value}")
    try:
        return load(settings_type, arguments, spec.service)
    except StartupError as error:
        raise CommandError(str(error)) from error
