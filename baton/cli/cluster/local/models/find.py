"""The models that a local cluster serves: from --model, the settings file, or the bundled one."""

from collections import Counter
from collections.abc import Sequence

from baton.cli.cluster.local.files.model_files import bundled_model, require
from baton.cli.cluster.local.models.local_model import LocalModel, parse, with_defaults
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import WorkerOptions
from baton.settings import StartupError
from baton.settings.file import models_in
from baton.settings.models import ModelSettings

MAX_MODELS = 32


def find_models(options: WorkerOptions) -> tuple[LocalModel, ...]:
    """Return the models of a cluster, at least one.

    Raises:
        CommandError: one is invalid, its checkpoint incomplete, or two cannot be served together.
    """
    given = [parse(text) for text in options.model or ()] or _of_file(options)
    if len(given) > MAX_MODELS:
        raise CommandError(
            f"{len(given)} models are too many for one machine: at most {MAX_MODELS}."
        )
    if len(given) > 1 and options.model_name:
        raise CommandError(
            f"--model-name {options.model_name} names one model, and there are {len(given)}: set "
            "each one's name after its path, --model PATH:name=NAME."
        )
    models = tuple(resolve(one, options) for one in given) or (_bundled(options),)
    require_distinct(models)
    return models


def resolve(given: ModelSettings, options: WorkerOptions) -> LocalModel:
    """Return a model with its checkpoint found and the command's options as defaults.

    Raises:
        CommandError: it has no checkpoint, no usable name, or no worker that decodes.
    """
    engine = given.engine or options.engine
    return with_defaults(given, require(given.path, with_weights=engine != "sim"), options)


def require_distinct(models: Sequence[LocalModel]) -> None:
    """Check that no two models have one name, or are the same under two.

    Raises:
        CommandError: two are.
    """
    names = Counter(model.name for model in models)
    for name, count in names.items():
        if count > 1:
            raise CommandError(
                f"{count} models are named {name!r}: name one of them differently, --model "
                "PATH:name=NAME."
            )
    seen: dict[tuple[object, ...], LocalModel] = {}
    for model in models:
        first = seen.setdefault((model.path, model.dtype, model.engine), model)
        # Simulated models compute nothing: which checkpoint they have is of no interest.
        if first is not model and model.engine != "sim":
            raise CommandError(
                f"Models {first.name!r} and {model.name!r} are the same one, {model.path}: serve "
                "it once, and give it another name with `baton aliases set "
                f"{model.name} {first.name}`."
            )


def _of_file(options: WorkerOptions) -> list[ModelSettings]:
    try:
        return [] if options.config is None else list(models_in(options.config).values())
    except StartupError as error:
        raise CommandError(str(error)) from error


def _bundled(options: WorkerOptions) -> LocalModel:
    path = require(bundled_model(), with_weights=options.engine != "sim")
    return with_defaults(ModelSettings(path=path), path, options)
