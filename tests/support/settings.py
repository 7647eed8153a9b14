"""Settings by their dotted names, as `baton config show` prints them: `engine.kv_bytes`.

The same mapping starts a service in this process or in one of its own.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from baton.settings import ProcessSettings
from baton.settings.describe import ENV_PREFIX

Settings = Mapping[str, object]
S = TypeVar("S", bound=ProcessSettings)


def parse(settings_type: type[S], settings: Settings) -> S:
    """Return a service's settings; names that it does not have are passed over."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        group, _, field = name.rpartition(".")
        if group:
            values.setdefault(group, {})[field] = value
        else:
            values[field] = value
    return settings_type(**values)


def environment(settings: Settings) -> dict[str, str]:
    """Return the same settings as environment variables."""
    return {ENV_PREFIX + name.replace(".", "_").upper(): _text(v) for name, v in settings.items()}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
