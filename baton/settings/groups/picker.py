"""Group of the endpoint picker."""

from pydantic import Field

from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import Bytes, Names


class PickingSettings(SettingsGroup):
    """What an endpoint picker reads of requests, and which ones it rejects."""

    max_body_bytes: Bytes = Field(
        4 * MIB,
        ge=0,
        le=1024 * MIB,
        description="largest body that is held to read its model; a frontend is picked for a "
        "request with a larger one without it",
    )
    max_held_bytes: Bytes = Field(
        256 * MIB,
        ge=0,
        le=1024 * 1024 * MIB,
        description="largest size of all held bodies together; beyond it, frontends are picked "
        "without the model",
    )
    sheddable: Names = Field(
        ("sheddable",),
        description="objectives (header x-gateway-inference-objective), separated by commas, "
        "whose requests are rejected with 429 if they would have to wait",
    )
    outlook_seconds: float = Field(
        0.2,
        gt=0,
        le=60,
        description="time for which a router's answer about a model's queue is used again",
    )
