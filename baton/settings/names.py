"""The settings, and the name of each in the environment, as a flag and in a file."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

ENV_PREFIX = "BATON_"
CONFIG_ENV = "BATON_CONFIG"
"""Path of the settings file."""
CONFIG_FLAG = "--config"
SECRETS_ENV = "BATON_SECRETS_DIR"
"""Directory of files that contain a secret each, named like the setting:
`telemetry.otlp_headers`."""


@dataclass(frozen=True, slots=True)
class SettingName:
    """The names of one setting."""

    path: tuple[str, ...]
    help: str
    secret: bool = False
    """Whether the value is hidden where settings are shown; no flag takes a secret's value."""

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def env(self) -> str:
        return ENV_PREFIX + "_".join(self.path).upper()

    @property
    def file_env(self) -> str:
        """The variable that names a file with the value; only for secrets."""
        return f"{self.env}_FILE"

    @property
    def flag(self) -> str:
        """The flag that takes the value, or for a secret the path of a file with it."""
        flag = "--" + "-".join(self.path).replace("_", "-")
        return f"{flag}-file" if self.secret else flag


_RENAMED = {
    ("telemetry", "metrics_host"): ("ops", "host"),
    ("telemetry", "metrics_port"): ("ops", "port"),
}
_OLD_AND_NEW = [(SettingName(old, ""), SettingName(new, "")) for old, new in _RENAMED.items()]
RENAMED = {old.dotted: new.dotted for old, new in _OLD_AND_NEW} | {
    old.env: new.env for old, new in _OLD_AND_NEW
}
"""Current names of settings of earlier releases, for errors."""


def fields_of(settings_type: type[BaseModel]) -> Iterator[SettingName]:
    """Yield every setting of a class, depth first, in the order of declaration."""
    for name, _ in leaves(settings_type):
        yield name


def leaves(
    settings_type: type[BaseModel], above: tuple[str, ...] = ()
) -> Iterator[tuple[SettingName, FieldInfo]]:
    """Yield every setting of a class with its declaration."""
    for name, field in settings_type.model_fields.items():
        path = (*above, name)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, path)
        else:
            yield SettingName(path, field.description or "", kind is SecretStr), field
