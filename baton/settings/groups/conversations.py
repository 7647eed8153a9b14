"""The group of stored responses and conversations."""

from pathlib import Path

from pydantic import Field

from baton.settings.groups.base import SettingsGroup
from baton.settings.values import Bytes

_MIB = 1024 * 1024


class ConversationSettings(SettingsGroup):
    """Stored responses and conversations, in the database of `state.url`. Requests that store
    nothing do not use it."""

    enabled: bool = Field(
        False,
        description="store responses in the database, unless a request says `store: false`",
    )
    connections: int = Field(
        8, ge=1, le=1000, description="maximum connections per frontend, beside state.connections"
    )
    statement_seconds: float = Field(
        0.5, gt=0, le=60, description="time for a statement, including the wait for a connection"
    )
    retention_days: int = Field(
        90,
        ge=0,
        le=36_500,
        description="months of items and responses are deleted once they are this old; 0: never",
    )
    max_items: int = Field(
        4096, ge=1, le=1_000_000, description="maximum items of a conversation, with a new turn's"
    )
    max_conversation_bytes: int = Field(
        16 * _MIB, ge=1024, description="maximum bytes of a conversation's items"
    )
    max_background: int = Field(
        64, ge=1, le=10_000, description="maximum responses that a frontend runs in the background"
    )
    lease_seconds: float = Field(
        10.0,
        ge=2,
        le=600,
        description="time after which another frontend continues a response in the background "
        "whose frontend does not respond",
    )
    spool_path: Path | None = Field(
        None,
        description="directory on a local disk that holds what ended while the database was away "
        "until it is stored, kept across restarts; frontends may share it; none: clients receive "
        "an error instead of the end",
    )
    spool_bytes: Bytes = Field(
        1024 * _MIB,
        ge=_MIB,
        description="maximum size of a frontend's part of it; beyond it, requests that would be "
        "stored are refused",
    )
