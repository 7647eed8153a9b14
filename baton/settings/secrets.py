"""Secrets: from a file per secret, as Kubernetes and Docker mount them, or from the environment."""

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from baton.settings.names import SECRETS_ENV, SettingName, fields_of
from baton.settings.processes import SERVICE_SETTINGS
from baton.settings.sources import Given, StartupError, near

MAX_SECRET_BYTES = 64 * 1024


def from_secrets(
    names: Sequence[SettingName], environ: Mapping[str, str]
) -> tuple[dict[str, Given], list[str]]:
    """Return the secrets in files, by dotted name, and warnings about the files.

    `BATON_X_FILE` names the file of one secret. `BATON_SECRETS_DIR` names a directory with a file
    per secret, which is named like the setting: `telemetry.otlp_headers`.

    Raises:
        StartupError: a file cannot be read, is empty or is writable by all users, or a secret is
            given twice.
    """
    directory = environ.get(SECRETS_ENV, "")
    found: dict[str, Given] = {}
    warnings = _unknown_files(Path(directory)) if directory else []
    for name in names:
        if not name.secret:
            continue
        named = environ.get(name.file_env, "")
        if named and name.env in environ:
            raise StartupError(f"{name.env} and {name.file_env} are both set: remove one of them.")
        path = Path(named) if named else Path(directory) / name.dotted
        if named or (directory and name.env not in environ and path.exists()):
            value, odd = read_secret(path, name.file_env if named else SECRETS_ENV)
            found[name.dotted] = Given(value, "secret", str(path), name.file_env)
            warnings += odd
    return found, warnings


def read_secret(path: Path, setting: str) -> tuple[str, list[str]]:
    """Return a file's text without the final newline, and warnings about the file.

    Args:
        path: the file.
        setting: the setting that names it, for errors.

    Raises:
        StartupError: it cannot be read, is empty, too long, or writable by all users.
    """
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        raise StartupError(
            f"The secret file {path} cannot be read ({error.strerror}): see {setting}."
        ) from error
    except UnicodeDecodeError as error:
        raise StartupError(f"The secret file {path} is not UTF-8: see {setting}.") from error
    if not text:
        raise StartupError(f"The secret file {path} is empty: see {setting}.")
    if len(content) > MAX_SECRET_BYTES:
        raise StartupError(
            f"The secret file {path} exceeds the limit of {MAX_SECRET_BYTES} bytes: see {setting}."
        )
    if mode & stat.S_IWOTH:
        raise StartupError(
            f"The secret file {path} is writable by all users: run chmod o-w {path}."
        )
    odd = (
        [f"the secret file {path} is readable by all users: run chmod o-r"]
        if mode & stat.S_IROTH
        else []
    )
    return text, odd


def _unknown_files(directory: Path) -> list[str]:
    """Return a warning per file in the directory whose name is not that of a secret."""
    known = {
        name.dotted
        for settings_type in SERVICE_SETTINGS.values()
        for name in fields_of(settings_type)
        if name.secret
    }
    try:
        # Names that begin with a dot are created by Kubernetes.
        files = [path.name for path in directory.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise StartupError(
            f"The secrets directory {directory} cannot be read ({error.strerror}): see "
            f"{SECRETS_ENV}."
        ) from error
    return [
        f"{directory / name} is not the file of a secret{near(name, known)}"
        for name in sorted(set(files) - known)
    ]
