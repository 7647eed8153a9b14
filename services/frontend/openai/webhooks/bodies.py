"""Bodies of requests about webhook endpoints, and the objects of their responses."""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from baton.errors import invalid_field
from baton.host.networks import AllowedNetworks
from baton.webhooks.events import EVENT_TYPES
from baton.webhooks.records import WebhookEndpoint
from services.frontend.http.json_body import decode_body

_MAX_NAME, _MAX_URL = 256, 2048
_VISIBLE = re.compile(r"[!-~]+")


class CreateEndpoint(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    url: str
    event_types: list[str]


class UpdateEndpoint(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    url: str | None = None
    event_types: list[str] | None = None


class RotateSecret(msgspec.Struct, forbid_unknown_fields=True):
    keep_old_secret_active_for_24_hours: bool = False


class SendTest(msgspec.Struct, forbid_unknown_fields=True):
    event_type: str


_create = msgspec.json.Decoder(CreateEndpoint)
_update = msgspec.json.Decoder(UpdateEndpoint)
_rotate = msgspec.json.Decoder(RotateSecret)
_test = msgspec.json.Decoder(SendTest)


def read_endpoint(data: bytes, networks: AllowedNetworks) -> CreateEndpoint:
    """Decode a new endpoint.

    Args:
        data: the body.
        networks: where receivers may be.

    Raises:
        BatonError: a field is missing, or its value is not possible.
    """
    body = decode_body(_create, data)
    _check(body.name, body.url, body.event_types, networks)
    return body


def read_update(data: bytes, networks: AllowedNetworks) -> UpdateEndpoint:
    """Decode a change of an endpoint, as `read_endpoint`."""
    body = decode_body(_update, data)
    _check(body.name, body.url, body.event_types, networks)
    return body


def read_rotation(data: bytes) -> bool:
    """Return whether the old secret stays, as the body of a rotation says; it may be empty."""
    return bool(data.strip()) and decode_body(_rotate, data).keep_old_secret_active_for_24_hours


def read_test(data: bytes) -> str:
    """Return the type of a sample event."""
    body = decode_body(_test, data)
    _check_types([body.event_type], "event_type")
    return body.event_type


def endpoint_object(found: WebhookEndpoint, secret: str = "") -> dict[str, Any]:
    """Return an endpoint in OpenAI's form.

    Args:
        found: the endpoint.
        secret: its new secret, which is shown once; empty: it has none.
    """
    shown = {
        "id": found.text,
        "object": "webhook_endpoint",
        "created_at": found.created_seconds,
        "event_types": found.event_types,
        "name": found.name,
        "signing_secret_hint": found.hint,
        "updated_at": int(found.updated.timestamp()),
        "url": found.url,
    }
    return shown | ({"signing_secret": secret} if secret else {})


def _check(
    name: str | None, url: str | None, types: Sequence[str] | None, networks: AllowedNetworks
) -> None:
    if name is not None and not 1 <= len(name) <= _MAX_NAME:
        raise invalid_field("name", f"must have 1 to {_MAX_NAME} characters")
    if url is not None:
        check_url(url, networks)
    if types is not None:
        _check_types(types, "event_types")


def _check_types(types: Sequence[str], field: str) -> None:
    if not types:
        raise invalid_field(field, f"must have one or more of {', '.join(EVENT_TYPES)}")
    for one in types:
        if one not in EVENT_TYPES:
            known = ", ".join(EVENT_TYPES)
            raise invalid_field(field, f"{one[:64]!r} is no event of this API; use {known}")
    if len(set(types)) < len(types):
        raise invalid_field(field, "names a type more than once")


def check_url(url: str, networks: AllowedNetworks, field: str = "url") -> None:
    """Check what can be known of a receiver's URL before it is connected to.

    Raises:
        BatonError: INVALID_ARGUMENT: it is no URL, or none that this cluster calls.
    """
    if len(url) > _MAX_URL:
        raise invalid_field(field, f"is longer than {_MAX_URL} characters")
    parts = _split(url)
    if parts is None or not parts.hostname:
        raise invalid_field(field, "is not a URL such as https://example.com/webhooks")
    if parts.scheme != "https" and not (parts.scheme == "http" and networks.has_own):
        raise invalid_field(field, "must begin with https://")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise invalid_field(field, "must not have a user, a password or a fragment")
    try:
        ip_address(parts.hostname.partition("%")[0])
    except ValueError:
        return  # a name: its address is checked when it is connected to
    if not networks.allow(parts.hostname, encrypted=parts.scheme == "https"):
        raise invalid_field(
            field,
            f"{parts.hostname[:64]} is not an address that this cluster calls "
            f"({networks.setting}): use a public one, with https",
        )


def _split(url: str) -> SplitResult | None:
    if not _VISIBLE.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises
    except ValueError:
        return None
    return parts
