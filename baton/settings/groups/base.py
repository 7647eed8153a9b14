"""What every group is made of."""

from pydantic import BaseModel, ConfigDict

MIB = 1024 * 1024


class SettingsGroup(BaseModel):
    """A frozen group of settings; a name that it does not have is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
