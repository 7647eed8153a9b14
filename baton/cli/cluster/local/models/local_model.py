"""One model of a local cluster, and how `--model PATH:OPTION=VALUE,…` describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import WorkerOptions
from baton.settings import StartupError
from baton.settings.models import MAX_WORKERS, ModelSettings, model_settings

ROLES = ("prefill", "decode", "combined")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model and the workers that serve it."""

    name: str
    """That clients request."""
    path: Path
    """Directory of its checkpoint."""
    prefill: int
    decode: int
    combined: int
    dtype: str = "auto"
    engine: str = "torch"

    def workers(self, role: str) -> int:
        """Return the number of its workers of a role."""
        return {"prefill": self.prefill, "decode": self.decode, "combined": self.combined}[role]

    @property
    def pools(self) -> str:
        """Its workers by role: `1 prefill, 2 decode`."""
        counts = ((self.workers(role), role) for role in ROLES)
        return ", ".join(f"{count} {role}" for count, role in counts if count)


def parse(text: str) -> ModelSettings:
    """Return what a value of --model says.

    A directory of this name is one, whatever colons it has. Otherwise what follows the last colon
    are options.

    Raises:
        CommandError: an option is unknown, given twice or invalid.
    """
    where = f"--model {text!r}"
    head, colon, tail = text.rpartition(":")
    if Path(text).is_dir() or not colon or not ("=" in tail or Path(head).is_dir()):
        head, tail = text, ""
    values: dict[str, object] = {}
    for part in filter(None, tail.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise CommandError(f"{where}: {part!r} is not OPTION=VALUE.")
        if option in values:
            raise CommandError(f"{where}: {option} is given twice.")
        values[option] = value
    if "path" in values:
        raise CommandError(f"{where}: the path is what comes before the colon.")
    return checked(where, {**values, "path": head})


def checked(where: str, values: Mapping[str, object]) -> ModelSettings:
    """Return settings of a model.

    Raises:
        CommandError: one is unknown or invalid.
    """
    try:
        return model_settings(where, values)
    except StartupError as error:
        raise CommandError(str(error)) from error


def with_defaults(given: ModelSettings, path: Path, options: WorkerOptions) -> LocalModel:
    """Return a model with what the command's options say where its own say nothing.

    Args:
        given: its own settings.
        path: its checkpoint, resolved.
        options: of the command.

    Raises:
        CommandError: it has no name that clients could request, or no worker that decodes.
    """
    counts = {}
    for role in ROLES:
        own, default = getattr(given, role), getattr(options, role)
        if own is None and not 0 <= default <= MAX_WORKERS:
            raise CommandError(f"--{role} is {default}: it must be from 0 to {MAX_WORKERS}.")
        counts[role] = default if own is None else own
    name = given.name or options.model_name or path.name
    checked(
        f"A model without name= is named like its directory, {path.name!r}",
        {"path": path, "name": name},
    )
    model = LocalModel(
        name,
        path,
        **counts,
        dtype=given.dtype or options.dtype,
        engine=given.engine or options.engine,
    )
    if model.decode + model.combined == 0:
        raise CommandError(
            f"Model {model.name!r} has no decode worker: set at least --decode 1 or --combined 1, "
            "for this model alone with decode=1 or combined=1 after a colon."
        )
    return model
