"""Sources of settings: a file, secrets, the environment, flags."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from baton.compiled.files import DIRECTORY_ENV, VARIANT_ENV
from baton.host.service_variables import service_variables
from baton.settings.names import (
    CONFIG_ENV,
    ENV_PREFIX,
    RENAMED,
    SECRETS_ENV,
    SettingName,
    fields_of,
)
from baton.settings.processes import SERVICE_SETTINGS

Kind = Literal["default", "file", "secret", "env", "flag"]


class StartupError(Exception):
    """A process cannot start. The message is one sentence: the problem and how to fix it."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value given for a setting."""

    value: object = field(repr=False)
    """May be a secret."""
    kind: Kind
    place: str = ""
    """The file that contains it; empty for the environment and flags."""
    key: str = ""
    """Its name there, with the process: `frontend.http.port`."""


_OTHER_VARIABLES = frozenset(
    {
        CONFIG_ENV,
        SECRETS_ENV,
        "BATON_PARENT_PID",
        "BATON_ADDRESS",
        "BATON_API_KEY",
        "BATON_MODELS_CACHE",
        "BATON_MODELS_SECRETS",
        DIRECTORY_ENV,
        VARIANT_ENV,
    }
)


def from_environment(names: Sequence[SettingName], environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the settings in the environment, by dotted name.

    Raises:
        StartupError: a variable begins like a group of this process and is not a setting of any
            process.
    """
    groups = {ENV_PREFIX + name.path[0].upper() + "_" for name in names if len(name.path) > 1}
    known = variables()
    environ = {name: environ[name] for name in environ.keys() - service_variables(environ)}
    for variable in sorted(environ):
        if any(variable.startswith(group) for group in groups) and variable not in known:
            hint = near(variable, known, "")
            raise StartupError(f"{variable} is not a setting{hint or ': remove it'}.")
    return {
        name.dotted: Given(environ[name.env], "env", key=name.env)
        for name in names
        if name.env in environ
    }


def variables() -> frozenset[str]:
    """Return the names of all variables that some process reads."""
    found = set(_OTHER_VARIABLES)
    for settings_type in SERVICE_SETTINGS.values():
        for name in fields_of(settings_type):
            found |= {name.env, name.file_env} if name.secret else {name.env}
    return frozenset(found)


def misspelled(environ: Mapping[str, str]) -> list[str]:
    """Return a warning per variable that looks like a misspelled setting.

    Not an error: the environment is shared with other programs, and Kubernetes adds to it.
    """
    known = variables()
    unknown = environ.keys() - known - service_variables(environ)
    return [
        f"{name} is not a setting{hint}"
        for name in sorted(unknown)
        if name.startswith(ENV_PREFIX) and (hint := near(name, known, "?", cutoff=0.9))
    ]


def near(name: str, known: Iterable[str], end: str = "?", cutoff: float = 0.75) -> str:
    """Return `; did you mean …` with the most similar name; empty if none is similar."""
    if name in RENAMED:
        return f"; did you mean {RENAMED[name]}{end}"
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}{end}" if close else ""


def overlay(*layers: Mapping[str, Given]) -> dict[str, Given]:
    """Return the last layer's value of each setting."""
    return {name: given for layer in layers for name, given in layer.items()}
