"""Bodies of administration requests. Types are checked here, values where records are written."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from baton.errors import invalid_field
from baton.tenancy.limits.spec import MAX_AMOUNT
from baton.tenancy.records.tenants import Scope
from services.frontend.http.json_body import decode_body
from services.frontend.requests.refusals import unsupported

T = TypeVar("T")

MAX_SECONDS = 100 * 365 * 86_400
"""Most seconds until a key expires."""
PROJECT_SCOPES = tuple(
    scope.value for scope in (Scope.INFERENCE, Scope.USAGE, Scope.STATE_READ, Scope.STATE_WRITE)
)
"""Scopes of project keys; admin keys are created separately."""


class ProjectCreate(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    external_key_id: Any = None
    geography: Any = None
    residency: Any = None


class ProjectUpdate(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    external_key_id: Any = None
    geography: Any = None


class AccountCreate(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    create_service_account_only: bool | None = None
    expires_in_seconds: int | None = None


class AccountUpdate(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    role: str | None = None


class KeyUpdate(msgspec.Struct, forbid_unknown_fields=True):
    scopes: list[str] | None = None
    expires_in_seconds: int | None = None


class KeyCreate(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    scopes: list[str] | None = None
    expires_in_seconds: int | None = None


class AdminKeyCreate(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    expires_in_seconds: int | None = None


class RateLimitUpdate(msgspec.Struct, forbid_unknown_fields=True):
    max_requests_per_1_minute: int | None = None
    max_tokens_per_1_minute: int | None = None
    batch_1_day_max_input_tokens: Any = None
    max_audio_megabytes_per_1_minute: Any = None
    max_images_per_1_minute: Any = None
    max_requests_per_1_day: Any = None


class SpendLimitUpdate(msgspec.Struct, forbid_unknown_fields=True):
    currency: str
    interval: str
    threshold_amount: int


class NotificationChannel(msgspec.Struct, forbid_unknown_fields=True):
    recipients: list[str]
    type: str
    subject_prefix: str | None = None


class SpendAlertBody(msgspec.Struct, forbid_unknown_fields=True):
    currency: str
    interval: str
    notification_channel: NotificationChannel
    threshold_amount: int


_UNSUPPORTED = (
    "external_key_id",
    "geography",
    "residency",
    "batch_1_day_max_input_tokens",
    "max_audio_megabytes_per_1_minute",
    "max_images_per_1_minute",
    "max_requests_per_1_day",
)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def read(kind: type[T], data: bytes) -> T:
    """Return a decoded body.

    Raises:
        BatonError: MALFORMED_BODY, INVALID_FIELD; UNSUPPORTED_PARAMETER: a field of OpenAI's that
            has no meaning here has a value.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    body: T = decode_body(decoder, data)
    for name in _UNSUPPORTED:
        if getattr(body, name, None) is not None:
            raise unsupported(name)
    return body


def seconds(value: int | None) -> int:
    """Return the lifetime of a key in seconds; 0: it does not expire.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if value is not None and not 1 <= value <= MAX_SECONDS:
        raise invalid_field("expires_in_seconds", f"{value} is out of range: 1 to {MAX_SECONDS}")
    return value or 0


def amount(name: str, value: int | None) -> int | None:
    """Return the new value of a limit; None: it does not change.

    0 is rejected: elsewhere it stands for no limit, which is the opposite of what a client means.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if value is not None and not 1 <= value <= MAX_AMOUNT:
        raise invalid_field(name, f"{value} is out of range: 1 to {MAX_AMOUNT} (no limit)")
    return value


def check_scopes(scopes: Sequence[str]) -> None:
    """Check the scopes of a project's key.

    Raises:
        BatonError: INVALID_FIELD.
    """
    for scope in scopes:
        if scope not in PROJECT_SCOPES:
            known = ", ".join(PROJECT_SCOPES)
            raise invalid_field("scopes", f"{scope[:64]!r} is not a scope of project keys: {known}")
