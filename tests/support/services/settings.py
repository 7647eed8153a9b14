"""Settings by their dotted names, as `baton config show` prints them: `engine.kv_bytes`.

The same mapping starts a service in this process or in its own.
"""

from collections.abc import Mapping
from typing import TypeVar

from baton.settings import SERVICE_SETTINGS, ProcessSettings, fields_of
from baton.settings.load import build
from baton.settings.names import ENV_PREFIX

Settings = Mapping[str, object]
S = TypeVar("S", bound=ProcessSettings)
EVERY_NAME = {name.dotted for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)}


def parse(settings_type: type[S], settings: Settings) -> S:
    """Return a service's settings, ignoring names that only other services have."""
    unknown = set(settings) - EVERY_NAME
    assert not unknown, f"no service has {unknown}"
    known = {name.dotted for name in fields_of(settings_type)}
    return build(settings_type, {k: v for k, v in settings.items() if k in known})


def environment(settings: Settings) -> dict[str, str]:
    """Return the same settings as environment variables."""
    return {ENV_PREFIX + name.replace(".", "_").upper(): _text(v) for name, v in settings.items()}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
