"""The settings file: TOML, one for all processes.

drain_seconds = 20            # of every process that has the setting

[etcd]                        # a group, likewise
endpoints = ["10.0.0.1:2379"]

[frontend.http]               # of one process; wins over the same group above
port = 9000

[models.qwen3]                # a model of `baton up`, which no process reads
path = "models/qwen3"
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from baton.settings.models import MODELS, ModelSettings, OnDemandSettings, models_of, on_demand_of
from baton.settings.names import SettingName, fields_of
from baton.settings.processes import SERVICE_SETTINGS
from baton.settings.sources import Given, StartupError, near

Key = tuple[str, ...]


def from_file(path: Path, process: str, names: Sequence[SettingName]) -> dict[str, Given]:
    """Return the settings that a file gives one process, by dotted name.

    The whole file is checked, including settings of other processes.

    Args:
        path: the file.
        process: process whose section applies in addition to common settings.
        names: the settings of this process.

    Raises:
        StartupError: the file cannot be read, or it contains an unknown name.
    """
    content = _parse(path)
    everywhere = {name.path for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)} | {
        name.path for name in names
    }
    models_of(path, content)
    on_demand_of(path, content)
    general = {
        key: value for key, value in content.items() if key not in (*SERVICE_SETTINGS, MODELS)
    }
    own = {name.path for name in names}
    found = {at: value for at, value in _flatten(path, general, everywhere, ()) if at in own}
    keys = {at: ".".join(at) for at in found}
    for section, settings_type in SERVICE_SETTINGS.items():
        table = content.get(section, {})
        if not isinstance(table, dict):
            raise StartupError(f"{path}: {section} is {table!r}: it must be a table.")
        known = {name.path for name in fields_of(settings_type)}
        values = dict(_flatten(path, table, known, (section,)))
        if section == process:
            found |= values
            keys |= {at: ".".join((section, *at)) for at in values}
    return {".".join(at): Given(value, "file", str(path), keys[at]) for at, value in found.items()}


def models_in(path: Path) -> dict[str, ModelSettings]:
    """Return the models that a file describes for `baton up`, by name.

    Raises:
        StartupError: the file cannot be read, or describes one wrongly.
    """
    return models_of(path, _parse(path))


def on_demand_in(path: Path) -> OnDemandSettings:
    """Return how the models of a file share room for their workers.

    Raises:
        StartupError: the file cannot be read, or says so wrongly.
    """
    return on_demand_of(path, _parse(path))


def _parse(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(
            f"The settings file {path} cannot be read ({error.strerror}): see BATON_CONFIG and "
            "--config."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"The settings file {path} is not TOML: {error}.") from error


def _flatten(
    path: Path, table: Mapping[str, object], known: set[Key], section: Key, above: Key = ()
) -> Iterator[tuple[Key, object]]:
    """Yield the settings of a table and the tables in it."""
    for key, value in table.items():
        at = (*above, key)
        if at in known:
            yield at, value
        elif not any(name[: len(at)] == at for name in known):
            raise StartupError(_unknown(path, (*section, *at), _names(known, section)))
        elif isinstance(value, dict):
            yield from _flatten(path, value, known, section, at)
        else:
            raise StartupError(
                f"{path}: {'.'.join((*section, *at))} is {value!r}: it must be a table."
            )


def _names(known: Iterable[Key], section: Key) -> set[str]:
    names = set() if section else set(SERVICE_SETTINGS)
    for name in known:
        for length in range(1, len(name) + 1):
            names.add(".".join((*section, *name[:length])))
    return names


def _unknown(path: Path, at: Key, names: set[str]) -> str:
    name = ".".join(at)
    return f"{path}: {name} is not a setting{near(name, names) or ': remove it.'}"
