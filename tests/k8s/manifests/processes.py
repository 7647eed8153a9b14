"""What the processes of Baton make of their environment."""

from functools import cache
from typing import Any

from baton.settings import SERVICE_SETTINGS, StartupError, fields_of, load_with_sources
from tests.k8s.manifests.view import Container

# Paths in the image, and in volumes: the machine that tests has others.
_PATHS = ("BATON_ENGINE_MODEL", "BATON_TLS_", "BATON_PUBLIC_")
_FILE = "_FILE"
# What stands in a secret's file, where not everything may.
_SECRETS = {"BATON_STATE_URL_FILE": "postgresql://user@host/database"}


def settings_of(container: Container) -> Any:
    """Return the settings that a process gets from its environment.

    Raises:
        StartupError: one is wrong.
    """
    secrets = secret_files_of(container.process)
    kept = frozenset(
        (name.removesuffix(_FILE), _SECRETS.get(name, "a-secret"))
        if name in secrets
        else (name, value)
        for name, value in container.environment.items()
        if name.startswith("BATON_") and not name.startswith(_PATHS)
    )
    settings, problem = _loaded(container.process, kept)
    if problem:
        raise StartupError(problem)
    return settings


@cache
def _loaded(process: str, environment: frozenset[tuple[str, str]]) -> tuple[Any, str]:
    try:
        return load_with_sources(
            SERVICE_SETTINGS[process], (), process, dict(environment)
        ).settings, ""
    except StartupError as error:
        return None, str(error)


@cache
def variables_of(process: str) -> frozenset[str]:
    """Return the variables that a process has settings for."""
    return frozenset(name.env for name in fields_of(SERVICE_SETTINGS[process]))


@cache
def secrets_of(process: str) -> frozenset[str]:
    """Return the variables that hold secrets."""
    return frozenset(name.env for name in fields_of(SERVICE_SETTINGS[process]) if name.secret)


@cache
def secret_files_of(process: str) -> frozenset[str]:
    """Return the variables that name files of secrets."""
    return frozenset(name.file_env for name in fields_of(SERVICE_SETTINGS[process]) if name.secret)
