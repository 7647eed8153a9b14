"""Records as OpenAI's objects. Fields that Baton does not have are null or left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baton.host.redaction import KEY_PREFIX
from baton.tenancy.records.audit import Actor, AuditRecord
from baton.tenancy.records.tenants import Key, Project, ServiceAccount
from services.frontend.http import pages

REDACTED = f"{KEY_PREFIX}…"
"""Shown for a secret, of which nothing is stored that could be shown."""
OPERATOR = "operator"
"""Owner of keys without a service account: an operator with access to etcd."""

RATE_LIMITS = {
    "requests_per_minute": "max_requests_per_1_minute",
    "tokens_per_minute": "max_tokens_per_1_minute",
}
"""OpenAI's names of the records' limits."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RawBody:
    """A response that is not JSON."""

    data: bytes
    content_type: bytes


def page(data: Sequence[Object], *, has_more: bool) -> Object:
    """Return a page of a list."""
    return pages.page(data, [one["id"] for one in data], has_more=has_more)


def project(record: Project) -> Object:
    """Return a project."""
    return {
        "object": "organization.project",
        "id": record.id,
        "name": record.name,
        "created_at": record.created_seconds,
        "archived_at": record.archived_seconds or None,
        "status": "archived" if record.archived_seconds else "active",
    }


def account(record: ServiceAccount) -> Object:
    """Return a service account."""
    return {
        "object": "organization.project.service_account",
        "id": record.id,
        "name": record.name,
        "role": "member",
        "created_at": record.created_seconds,
    }


def new_key(record: Key, secret: str) -> Object:
    """Return a service account's key with its secret, which is shown only here."""
    return {
        "object": "organization.project.service_account.api_key",
        "id": record.id,
        "name": record.name,
        "value": secret,
        "created_at": record.created_seconds,
        "expires_at": record.expires_seconds or None,
    }


def project_key(record: Key, owner: ServiceAccount | None, last_used: int | None) -> Object:
    """Return a key of a project."""
    if owner is None:
        who = {"type": "user", "user": _operator(record) | {"email": ""}}
    else:
        shown = account(owner)
        del shown["object"]
        who = {"type": "service_account", "service_account": shown}
    return {
        "object": "organization.project.api_key",
        **_key(record, last_used),
        "owner": who,
        "owner_project_access": "active",
    }


def admin_key(record: Key, last_used: int | None) -> Object:
    """Return an admin key."""
    owner = _operator(record) | {"object": "organization.user", "type": "user"}
    return {"object": "organization.admin_api_key", **_key(record, last_used), "owner": owner}


def deleted(kind: str, ident: str) -> Object:
    """Return the confirmation of a deletion; `kind` as `organization.project.api_key`."""
    return {"object": f"{kind}.deleted", "id": ident, "deleted": True}


def audit_log(record: AuditRecord) -> Object:
    """Return a change, with its details under the name of its type."""
    details: Object = {"id": record.resource, "before": record.before, "after": record.after}
    verb = record.event.rpartition(".")[2]
    if verb == "created":
        details["data"] = _titled(record)
    elif verb == "updated":
        details["changes_requested"] = _titled(record)
    told: Object = {
        "id": record.id,
        "type": record.event,
        "effective_at": record.at_seconds,
        "actor": _actor(record.actor),
        record.event: details,
    }
    if record.project:
        told["project"] = {"id": record.project, "name": record.project_name}
    return told


def _key(record: Key, last_used: int | None) -> Object:
    return {
        "id": record.id,
        "name": record.name,
        "redacted_value": REDACTED,
        "created_at": record.created_seconds,
        "expires_at": record.expires_seconds or None,
        "last_used_at": last_used,
    }


def _operator(record: Key) -> Object:
    name = {"id": OPERATOR, "name": OPERATOR}
    return name | {"role": "owner", "created_at": record.created_seconds}


def _actor(actor: Actor) -> Object:
    if not actor.key:
        return {"type": "session", "session": {"user": {"id": OPERATOR, "email": ""}}}
    shown: Object = {"id": actor.key, "type": "user", "user": {"id": OPERATOR, "email": ""}}
    if actor.service_account:
        owner = {"id": actor.service_account}
        shown = {"id": actor.key, "type": "service_account", "service_account": owner}
    return {"type": "api_key", "api_key": shown}


def _titled(record: AuditRecord) -> Object:
    fields = dict(record.after)
    if record.event == "rate_limit.updated":
        return {RATE_LIMITS.get(name, name): value for name, value in fields.items()}
    if record.event.startswith("project.") and "name" in fields:
        fields["title"] = fields["name"]  # OpenAI's name in this object
    return fields
