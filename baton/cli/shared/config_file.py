"""The settings file as a source of option defaults, for commands that start a cluster."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import typer

_OPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "http_port": ("frontend", "http.port"),
        "grpc_port": ("frontend", "grpc.port"),
        "etcd_endpoint": ("frontend", "etcd.endpoints"),
        "cluster": ("frontend", "etcd.cluster"),
        "auth": ("frontend", "auth.mode"),
        "model": ("decode", "engine.model"),
        "model_name": ("decode", "engine.model_name"),
        "dtype": ("decode", "engine.dtype"),
        "engine": ("decode", "engine.kind"),
    }
)
"""Options of `baton up`: the process and setting of the file that provide their defaults."""


def take_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Use values of the settings file as defaults of a command's options.

    Raises:
        CommandError: the file cannot be read, or a setting in it is invalid.
    """
    if path is None:
        return None
    _require_one_source(path)
    processes = dict.fromkeys(process for process, _ in _OPTIONS.values())
    given = {process: given_in_file(path, process) for process in processes}
    context.default_map = {
        option: given[process][name]
        for option, (process, name) in _OPTIONS.items()
        if name in given[process]
    }
    context.default_map |= _room_in(path)
    if "model" in context.default_map:  # may be given several times
        context.default_map["model"] = [context.default_map["model"]]
    return path


def _room_in(path: Path) -> dict[str, str]:
    """Return the options that say how the models of a file share room.

    Raises:
        CommandError: a value is invalid.
    """
    from baton.cli.shared.errors import CommandError
    from baton.settings import StartupError
    from baton.settings.file import on_demand_in

    try:
        room = on_demand_in(path)
    except StartupError as error:
        raise CommandError(str(error)) from error
    given = {"on_demand": room.on_demand, "min_stay": room.min_stay_seconds}
    return {option: str(value) for option, value in given.items() if value is not None}


def _require_one_source(path: Path) -> None:
    """Check that a file does not name models in two ways.

    Raises:
        CommandError: it does, or it cannot be read.
    """
    from baton.cli.shared.errors import CommandError
    from baton.settings import StartupError
    from baton.settings.file import models_in

    try:
        models = models_in(path)
    except StartupError as error:
        raise CommandError(str(error)) from error
    if models and "engine.model" in given_in_file(path, "decode"):
        raise CommandError(
            f"{path} has engine.model and models.{next(iter(models))}: `baton up` takes its models "
            "from one of them. Remove engine.model, or all of models."
        )


def given_in_file(path: Path, process: str) -> dict[str, str]:
    """Return the settings that a file gives a process, by dotted name, as text.

    Raises:
        CommandError: the file cannot be read, or a setting in it is invalid.
    """
    from baton.cli.shared.errors import CommandError
    from baton.settings import SERVICE_SETTINGS, StartupError, describe, load_with_sources
    from baton.settings.names import CONFIG_FLAG

    arguments = [f"{CONFIG_FLAG}={path}"]
    try:
        loaded = load_with_sources(SERVICE_SETTINGS[process], arguments, process, {})
    except StartupError as error:
        raise CommandError(str(error)) from error
    return {row.name.dotted: row.value for row in describe(loaded) if row.source == "file"}


def given_variables(path: Path | None, process: str) -> set[str]:
    """Return the names of setting variables that the environment or the file gives a process."""
    from baton.settings.names import SettingName

    names = given_in_file(path, process) if path is not None else {}
    return set(os.environ) | {SettingName(tuple(name.split(".")), "").env for name in names}
