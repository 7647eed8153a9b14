"""The group of webhooks."""

from pydantic import Field

from baton.host.networks import PUBLIC
from baton.settings.groups.base import SettingsGroup
from baton.settings.values import Networks


class WebhookSettings(SettingsGroup):
    """Webhooks, in the database of `state.url`."""

    enabled: bool = Field(
        False, description="let projects have webhook endpoints, and deliver events to them"
    )
    allow: Networks = Field(
        (PUBLIC,),
        description="networks that receivers may be in, checked at each connect; public: all "
        "public addresses; http:// is possible in the other ones",
    )
    attempt_seconds: float = Field(
        15.0, ge=0.1, le=60, description="time for an attempt to deliver an event"
    )
    retry_seconds: float = Field(
        24 * 3600.0,
        ge=60,
        le=7 * 24 * 3600,
        description="age of an event after which its delivery is given up",
    )
    retention_days: int = Field(
        30, ge=1, le=3650, description="attempts are deleted from the log once they are this old"
    )
