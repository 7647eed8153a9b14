"""Load settings from flags and environment, or say in a sentence what to change."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from baton.settings.describe import ENV_PREFIX, SettingName, fields_of
from baton.settings.processes import SERVICE_SETTINGS, ProcessSettings

S = TypeVar("S", bound=ProcessSettings)


class StartupError(Exception):
    """A process cannot start. The text is one sentence: what is wrong and how to fix it."""


def load(settings_type: type[S], arguments: Sequence[str] = (), program: str = "baton") -> S:
    """Read settings: a flag wins over the environment, that over the default.

    Args:
        settings_type: the process's class.
        arguments: command line without the program's name, for example `["--grpc-port", "0"]`.
        program: name of the process in `--help`.

    Raises:
        StartupError: a setting is unknown or wrong; the text names it and what it may be.
        SystemExit: `--help` was printed.
    """
    names = list(fields_of(settings_type))
    given = _parser(names, program).parse_args(list(arguments))
    values: dict[str, Any] = {}
    for name in names:
        value = getattr(given, name.dotted)
        if value is not None:
            at = values
            for part in name.path[:-1]:
                at = at.setdefault(part, {})
            at[name.path[-1]] = value
    try:
        return settings_type(**values)
    except ValidationError as error:
        sentences = [_sentence(details, names) for details in error.errors()]
        raise StartupError(" ".join(sentences)) from error
    except SettingsError as error:
        raise StartupError(f"The environment cannot be read as settings: {error}.") from error


def misspelled(environ: Iterable[str]) -> list[str]:
    """Return a sentence per variable that looks like a misspelled setting.

    Not an error: the environment is shared with other programs, and Kubernetes adds to it.
    """
    known = {name.env for kind in SERVICE_SETTINGS.values() for name in fields_of(kind)}
    unknown = [name for name in environ if name.startswith(ENV_PREFIX) and name not in known]
    return [
        f"{name} is not a setting; did you mean {close}?"
        for name in sorted(unknown)
        for close in difflib.get_close_matches(name, known, n=1, cutoff=0.9)
    ]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(f"{message}; {self.prog} --help lists every flag.")


def _parser(names: Sequence[SettingName], program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, allow_abbrev=False, description="A process of Baton.")
    for name in names:
        text = f"{name.help} [{name.env}]".replace("%", "%%")
        parser.add_argument(name.flag, dest=name.dotted, metavar="VALUE", help=text)
    return parser


def _sentence(details: ErrorDetails, names: Sequence[SettingName]) -> str:
    path = tuple(str(part) for part in details["loc"])
    known = next((name for name in names if path[: len(name.path)] == name.path), None)
    if known is None:
        name = SettingName(path, "")
        return f"{name.dotted} is not a setting: remove {name.env}."
    reason = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = reason[:1].lower() + reason[1:]
    return (
        f"{known.dotted} is {str(details['input'])[:200]!r}: {reason}"
        f" ({known.help}). Set {known.env} or {known.flag}."
    )
