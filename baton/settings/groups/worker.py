"""Groups of workers."""

from typing import Literal

from pydantic import Field

from baton.settings.groups.base import SettingsGroup
from baton.settings.values import Transports
from baton.transports import TRANSPORTS


class KvSettings(SettingsGroup):
    """A worker's use of the KV transfer service."""

    store_id: str = Field("", description="instance id of the worker's store; empty: the first one")
    transports: Transports = Field(
        TRANSPORTS, description="KV transports, best first; grpc works everywhere"
    )
    verify: Literal["always", "remote", "never"] = Field(
        "always",
        description="copies to check against their digest: all, those that crossed a network, "
        "none (for experiments: corrupt KV gives wrong answers)",
    )
