"""Load settings, or fail with a message that says what to change.

Precedence, highest first: flags, the environment, secret files, the settings file, defaults.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baton.settings.file import from_file
from baton.settings.names import CONFIG_ENV, CONFIG_FLAG, SettingName, fields_of
from baton.settings.processes import SERVICE_SETTINGS, ProcessSettings
from baton.settings.secrets import from_secrets, read_secret
from baton.settings.sources import Given, StartupError, from_environment, overlay
from baton.settings.values import HOLDS_SECRET

S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True)
class Loaded(Generic[S]):
    """Settings, and the sources of their values."""

    settings: S
    given: Mapping[str, Given]
    """Given values, by dotted name; all other settings have their defaults."""
    warnings: tuple[str, ...]
    """Warnings for the operator, a sentence each."""


def load(settings_type: type[S], arguments: Sequence[str] = (), process: str = "baton") -> S:
    """Return the settings of `load_with_sources`."""
    return load_with_sources(settings_type, arguments, process).settings


def load_with_sources(
    settings_type: type[S],
    arguments: Sequence[str] = (),
    process: str = "baton",
    environ: Mapping[str, str] | None = None,
) -> Loaded[S]:
    """Read settings from flags, environment and files.

    Args:
        settings_type: the process's class.
        arguments: command line without the program's name, for example `["--grpc-port", "0"]`.
        process: its name, in `--help` and as a section of the settings file.
        environ: the environment; None: this process's.

    Raises:
        StartupError: a setting is unknown or invalid; the message names it and its allowed values.
        SystemExit: `--help` was printed.
    """
    environ = os.environ if environ is None else environ
    names = list(fields_of(settings_type))
    flags = vars(_parser(names, process).parse_args(list(arguments)))
    config = flags.pop(CONFIG_FLAG) or environ.get(CONFIG_ENV, "")
    secrets, warnings = from_secrets(names, environ)
    given = overlay(
        from_file(Path(config), process, names) if config else {},
        secrets,
        from_environment(names, environ),
        _from_flags(names, flags, warnings),
    )
    try:
        settings = build(settings_type, {name: one.value for name, one in given.items()})
    except ValidationError as error:
        sentences = [_sentence(details, names, given) for details in error.errors()]
        raise StartupError(" ".join(sentences)) from None  # the cause contains secrets
    return Loaded(settings, given, tuple(warnings))


def build(settings_type: type[S], given: Mapping[str, object]) -> S:
    """Return settings with these values, by dotted name, and defaults for the others.

    Raises:
        ValidationError: a value is invalid.
    """
    values: dict[str, Any] = {}
    for name, field in settings_type.model_fields.items():
        if isinstance(field.default, BaseModel):
            # A class may have its own defaults for a group, such as the frontend's port.
            own = field.default.model_fields_set
            values[name] = {part: getattr(field.default, part) for part in own}
    for dotted, value in given.items():
        *above, last = dotted.split(".")
        at = values
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    return settings_type(**values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(f"{message}; {self.prog} --help lists every flag.")


def _parser(names: Sequence[SettingName], process: str) -> argparse.ArgumentParser:
    program = f"baton serve {process}" if process in SERVICE_SETTINGS else "baton"
    parser = _Parser(prog=program, allow_abbrev=False, description="A process of Baton.")
    parser.add_argument(
        CONFIG_FLAG,
        dest=CONFIG_FLAG,
        metavar="FILE",
        help=f"settings file (TOML) under the environment and flags [{CONFIG_ENV}]",
    )
    for name in names:
        variable = name.file_env if name.secret else name.env
        text = f"{name.help} [{variable}]".replace("%", "%%")
        metavar = "FILE" if name.secret else "VALUE"
        parser.add_argument(name.flag, dest=name.dotted, metavar=metavar, help=text)
    return parser


def _from_flags(
    names: Sequence[SettingName], flags: Mapping[str, str | None], warnings: list[str]
) -> dict[str, Given]:
    found = {}
    for name in names:
        value = flags[name.dotted]
        if value is not None and name.secret:
            value, odd = read_secret(Path(value), name.flag)
            warnings += odd
        if value is not None:
            found[name.dotted] = Given(value, "flag", key=name.flag)
    return found


def _sentence(
    details: ErrorDetails, names: Sequence[SettingName], given: Mapping[str, Given]
) -> str:
    path = tuple(str(part) for part in details["loc"])
    name = next(name for name in names if path[: len(name.path)] == name.path)
    reason = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = reason[:1].lower() + reason[1:]
    hidden = name.secret or details["type"] == HOLDS_SECRET
    value = "wrong" if hidden else repr(str(details["input"])[:200])
    one = given.get(name.dotted)
    if one is not None and one.place:
        return f"{name.dotted} is {value}: {reason} ({name.help}). Change {one.key} in {one.place}."
    return f"{name.dotted} is {value}: {reason} ({name.help}). Set {name.env} or {name.flag}."
