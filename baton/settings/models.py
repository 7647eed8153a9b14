"""The models of a local cluster, as `baton up --model` and `[models.NAME]` describe them.

Processes of a cluster do not read them: `baton up` starts workers of each.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from baton.settings.groups.base import SettingsGroup
from baton.settings.sources import StartupError, near
from baton.settings.values import MODEL_NAME

MODELS = "models"
"""Table of the settings file."""
MAX_WORKERS = 64
"""Most workers of a role, of each model."""
MAX_MIN_STAY_SECONDS = 86_400


class ModelSettings(SettingsGroup):
    """One model and its workers. What is None is as for the cluster's other models."""

    path: Path
    name: str | None = Field(None, pattern=f"^{MODEL_NAME}$")
    prefill: int | None = Field(None, ge=0, le=MAX_WORKERS)
    decode: int | None = Field(None, ge=0, le=MAX_WORKERS)
    combined: int | None = Field(None, ge=0, le=MAX_WORKERS)
    dtype: Literal["auto", "float32", "bfloat16", "float64"] | None = None
    engine: Literal["torch", "sim", "vllm"] | None = None


class OnDemandSettings(SettingsGroup):
    """How the models share room for fewer than all of their workers."""

    on_demand: int | None = Field(None, ge=1)
    min_stay_seconds: float | None = Field(None, ge=0, le=MAX_MIN_STAY_SECONDS)


OPTIONS = tuple(name for name in ModelSettings.model_fields if name != "path")


def model_settings(where: str, values: Mapping[str, object]) -> ModelSettings:
    """Return the settings of a model.

    Args:
        where: where they are from, for errors.
        values: by name.

    Raises:
        StartupError: one is unknown, invalid or missing.
    """
    try:
        return ModelSettings.model_validate(dict(values))
    except ValidationError as error:
        (*_, option), problem = error.errors()[0]["loc"], error.errors()[0]
        name = str(option) if str(option) in ModelSettings.model_fields else str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(OPTIONS)
            raise StartupError(
                f"{where}: {name!r} is not an option of a model{near(name, OPTIONS, '')}: use "
                f"{known}."
            ) from None
        if problem["type"] == "missing":
            raise StartupError(f"{where} has no {name}: set it to a checkpoint.") from None
        reason = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
        reason = reason[:1].lower() + reason[1:]
        raise StartupError(
            f"{where}: {name} is {str(problem['input'])[:200]!r}: {reason}."
        ) from None


def models_of(path: Path, content: Mapping[str, object]) -> dict[str, ModelSettings]:
    """Return the models in the content of a settings file, by name.

    Raises:
        StartupError: one is invalid.
    """
    tables = content.get(MODELS, {})
    if not isinstance(tables, dict):
        raise StartupError(f"{path}: {MODELS} is {tables!r}: it must be a table.")
    found = {}
    for name, table in tables.items():
        if name in OnDemandSettings.model_fields and not isinstance(table, dict):
            continue
        where = f"{path}: {MODELS}.{name}"
        if not isinstance(table, dict):
            raise StartupError(f"{where} is {table!r}: it must be a table.")
        if "name" in table:
            raise StartupError(f"{where}: remove name: the table's own name is the model's.")
        found[name] = model_settings(where, {**table, "name": name})
    return found


def on_demand_of(path: Path, content: Mapping[str, object]) -> OnDemandSettings:
    """Return how the models in the content of a settings file share room.

    Raises:
        StartupError: a value is invalid.
    """
    tables = content.get(MODELS, {})
    values = tables if isinstance(tables, dict) else {}
    given = {
        name: values[name]
        for name in OnDemandSettings.model_fields
        if name in values and not isinstance(values[name], dict)
    }
    try:
        return OnDemandSettings.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        reason = problem["msg"].removeprefix("Input ")
        raise StartupError(
            f"{path}: {MODELS}.{problem['loc'][0]} is {str(problem['input'])[:200]!r}: {reason}."
        ) from None
