"""The base class of setting groups."""

from pydantic import BaseModel, ConfigDict

MIB = 1024 * 1024


class SettingsGroup(BaseModel):
    """A frozen group of settings; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
