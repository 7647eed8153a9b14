"""The settings of each process: their names, values and sources."""

from dataclasses import dataclass

from pydantic import BaseModel, SecretStr

from baton.settings.load import Loaded, S
from baton.settings.names import SettingName, leaves
from baton.settings.sources import Kind


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its value."""

    name: SettingName
    value: str
    """As text; secrets are hidden."""
    source: Kind
    """Where the value is from."""
    place: str = ""
    """The path of a `file` or `secret`."""


def describe(loaded: Loaded[S]) -> list[Setting]:
    """Return every setting with its value and source, secrets hidden."""
    rows = []
    for name, _ in leaves(type(loaded.settings)):
        one = loaded.given.get(name.dotted)
        kind: Kind = "default" if one is None else one.kind
        place = "" if one is None else one.place
        rows.append(Setting(name, text(value_of(loaded.settings, name)), kind, place))
    return rows


def value_of(settings: BaseModel, name: SettingName) -> object:
    """Return the value of one setting."""
    value: object = settings
    for part in name.path:
        value = getattr(value, part)
    return value


def text(value: object) -> str:
    """Return a value as it is written in the environment, secrets hidden."""
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, float):
        return f"{value:.12g}"
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
