"""The settings of each process: their names, values and sources."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from baton.settings.processes import ProcessSettings

ENV_PREFIX = "BATON_"


@dataclass(frozen=True, slots=True)
class SettingName:
    """The names of one setting."""

    path: tuple[str, ...]
    help: str

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    @property
    def env(self) -> str:
        return ENV_PREFIX + "_".join(self.path).upper()

    @property
    def flag(self) -> str:
        return "--" + "-".join(self.path).replace("_", "-")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its value."""

    name: str
    """Dotted, for example `grpc.port`."""
    env: str
    flag: str
    value: str
    """As text; secrets are hidden."""
    source: str
    """`flag`, `env` or `default`."""
    help: str


def fields_of(settings_type: type[BaseModel]) -> Iterator[SettingName]:
    """Yield every setting of a class, depth first, in the order of declaration."""
    for name, _ in _leaves(settings_type, ()):
        yield name


def describe(
    settings: ProcessSettings,
    flags: frozenset[str] = frozenset(),
    environ: Mapping[str, str] | None = None,
) -> list[Setting]:
    """Return every setting with its value and source, secrets hidden.

    Args:
        settings: what `baton.settings.load` returned.
        flags: flags that were given, for example `--grpc-port`.
        environ: the environment that was read; None: the process's.
    """
    names = {name.upper() for name in (os.environ if environ is None else environ)}
    rows = []
    for name, _ in _leaves(type(settings), ()):
        value: object = settings
        for part in name.path:
            value = getattr(value, part)
        source = "flag" if name.flag in flags else "env" if name.env in names else "default"
        rows.append(Setting(name.dotted, name.env, name.flag, _text(value), source, name.help))
    return rows


def _leaves(
    settings_type: type[BaseModel], above: tuple[str, ...]
) -> Iterator[tuple[SettingName, FieldInfo]]:
    for name, field in settings_type.model_fields.items():
        path = (*above, name)
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _leaves(annotation, path)
        else:
            yield SettingName(path, field.description or ""), field


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
