"""The records of tenancy, as JSON in etcd: a tenant has projects, which have accounts and keys.

Bytes are base64, times whole seconds since the Unix epoch, and 0 means never or no limit. Fields
are only ever added: readers ignore unknown ones. `version` counts the changes of a record, from 1:
of two copies, the one with the higher version is newer.
"""

import re
from enum import StrEnum
from typing import TypeVar, cast

import msgspec

from baton.settings.values import MODEL_NAME
from baton.tenancy.limits.spec import (
    AMOUNTS,
    MAX_BUDGET,
    Subject,
    SubjectLimits,
    check_amount,
    check_budget,
)
from baton.tenancy.records.adapters import AdapterRecord, check_adapter
from baton.tenancy.records.aliases import ModelAlias, check_alias
from baton.tenancy.records.auto import AutoRules, check_auto
from baton.tenancy.records.classes import ClassPolicy, check_class, check_weight
from baton.tenancy.records.policies import ModelPolicy, check_policy
from baton.tenancy.records.providers import Provider, check_provider
from baton.tenancy.records.secret import DIGEST_BYTES
from baton.v1 import common_pb2

NAME = r"[a-z0-9][a-z0-9-]{0,62}"
"""Pattern of the names of tenants and projects."""
MAX_TITLE = 128
MAX_MODELS = 256
MAX_SCOPES = 32
MAX_ALERTS = 20
MAX_RECIPIENTS = 20
MAX_RECIPIENT = 254


class Tier(StrEnum):
    """The service tier of a tenant."""

    FREE = "free"
    PRO = "pro"
    ENTERPRISE = "enterprise"

    @property
    def highest_priority(self) -> int:
        """The `PriorityClass` that requests are capped at."""
        if self is Tier.FREE:
            return common_pb2.PRIORITY_CLASS_INTERACTIVE
        return common_pb2.PRIORITY_CLASS_PREMIUM


class Scope(StrEnum):
    """A permission of a key. Keys may name scopes of later releases."""

    INFERENCE = "inference"
    """Models: generate, chat, tokenize, list."""
    USAGE = "usage"
    """Read usage."""
    ADMIN = "admin"
    """Change projects and keys of the tenant."""
    STATE_READ = "state.read"
    """Read what the project stored: responses, conversations, items; and continue it."""
    STATE_WRITE = "state.write"
    """Store, change and delete responses, conversations and items."""


class Limited(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Limits that tenants, projects and keys may have; 0: no limit of that kind."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    """Tokens of prompts and outputs, per minute."""
    requests_at_once: int = 0
    context_tokens: int = 0
    """Prompt and output tokens together, in one request."""
    budget_nanodollars_per_month: int = 0
    """Cost limit of requests in a month of UTC; 0: no limit."""


class SpendAlert(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """An alert that is reported once a month, when spending in it reaches an amount."""

    id: str
    threshold_nanodollars: int
    recipients: tuple[str, ...] = ()
    """Recipients, for the reader of the log to notify: nothing is sent."""
    subject_prefix: str = ""


class Tenant(Limited, omit_defaults=True, kw_only=True, gc=False):
    """A customer or department: the owner of projects, of a KV salt and of a share of KV memory."""

    id: str
    tier: Tier
    created_seconds: int = 0
    kv_bytes: int = 0
    """Most bytes that it may hold in each tier of each store; 0: only its share limits it."""
    stored_conversations: int = 0
    """Most conversations that it may have stored; 0: no limit."""
    stored_bytes: int = 0
    """Most bytes of items, responses, summaries and chat completions stored; 0: no limit."""
    weight: int = 0
    """Its weight when sharing worker compute with other waiting tenants; 0: one."""
    disabled_seconds: int = 0
    """Since when all its keys are rejected; 0: they are accepted."""
    spend_alerts: tuple[SpendAlert, ...] = ()
    version: int = 1


class Project(Limited, omit_defaults=True, kw_only=True, gc=False):
    """A team or application of a tenant: the owner of keys."""

    id: str
    tenant: str
    name: str
    created_seconds: int = 0
    archived_seconds: int = 0
    """Since when all its keys are rejected; 0: they are accepted."""
    spend_alerts: tuple[SpendAlert, ...] = ()
    version: int = 1


class ServiceAccount(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """A program of a project: the owner of keys, which are revoked with it."""

    id: str
    project: str
    """ID of the project."""
    name: str
    """Display name."""
    created_seconds: int = 0
    deleted_seconds: int = 0
    """Since when all its keys are rejected; 0: they are accepted."""
    version: int = 1


class OldSecret(msgspec.Struct, gc=False):
    """The secret before the last rotation, which stays valid for a while."""

    sha256: bytes
    until_seconds: int


class Key(Limited, omit_defaults=True, kw_only=True, gc=False):
    """An API key. Only a digest of its secret is stored; the secret is shown once."""

    id: str
    project: str
    """ID of the project."""
    service_account: str = ""
    """ID of the service account that owns it; empty: none."""
    name: str = ""
    """Display name."""
    sha256: bytes
    """SHA-256 of the secret."""
    old_secret: OldSecret | None = None
    scopes: tuple[str, ...]
    models: tuple[str, ...] = ()
    """Models and adapters that it may be used for; none: all."""
    created_seconds: int = 0
    expires_seconds: int = 0
    """When it expires; 0: never."""
    revoked_seconds: int = 0
    """Since when it is revoked; 0: it is not."""
    version: int = 1


Record = (
    Tenant
    | Project
    | ServiceAccount
    | Key
    | ClassPolicy
    | ModelAlias
    | Provider
    | AutoRules
    | AdapterRecord
    | ModelPolicy
)
R = TypeVar("R", bound=Record)

KINDS: dict[str, type[Record]] = {
    "accounts": ServiceAccount,
    "adapters": AdapterRecord,
    "aliases": ModelAlias,
    "auto": AutoRules,
    "classes": ClassPolicy,
    "keys": Key,
    "policies": ModelPolicy,
    "projects": Project,
    "providers": Provider,
    "tenants": Tenant,
}
"""Record types by the prefix of the record's name."""
KIND_OF: dict[type, str] = {kind: name for name, kind in KINDS.items()}

_NAME = re.compile(NAME)
_PROJECT_ID = re.compile(r"proj_[0-9a-f]{16}")
_ACCOUNT_ID = re.compile(r"svc_acct_[0-9a-f]{16}")
_ALERT_ID = re.compile(r"spend_alert_[0-9a-f]{16}")
_KEY_ID = re.compile(r"key_[0-9a-f]{16}")
_MODEL = re.compile(MODEL_NAME)
_SCOPE = re.compile(r"[a-z][a-z0-9_.:-]{0,63}")
_decoders: dict[type, msgspec.json.Decoder[Record]] = {
    kind: msgspec.json.Decoder(kind) for kind in KINDS.values()
}
encode = msgspec.json.encode
"""Returns a record in its stored form."""


def parse(kind: type[R], ident: str, value: bytes) -> R:
    """Return the record in a stored value.

    Args:
        kind: type of the record.
        ident: ID from its name in etcd.
        value: JSON.

    Raises:
        ValueError: it is invalid; the message names the field and its allowed values.
    """
    try:
        record = cast(R, _decoders[kind].decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None
    if record.id != ident:
        raise ValueError(f"id: {record.id!r} is stored as {ident!r}")
    check(record)
    return record


def limits_of(record: Tenant | Project | Key) -> SubjectLimits:
    """Return the limits of a record, with its version."""
    match record:
        case Tenant():
            subject = Subject.TENANT
        case Project():
            subject = Subject.PROJECT
        case Key():
            subject = Subject.KEY
    return SubjectLimits(
        subject,
        record.id,
        record.requests_per_minute,
        record.tokens_per_minute,
        record.requests_at_once,
        record.context_tokens,
        record.version,
        record.budget_nanodollars_per_month,
        not isinstance(record, Key) and bool(record.spend_alerts),
        "" if isinstance(record, Tenant) else record.name,
    )


def check(record: Record) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    _at_least(record, "version", 1)
    if isinstance(record, ClassPolicy):
        check_class(record)
        return
    if isinstance(record, ModelAlias):
        check_alias(record)
        return
    if isinstance(record, Provider):
        check_provider(record)
        return
    if isinstance(record, AutoRules):
        check_auto(record)
        return
    if isinstance(record, ModelPolicy):
        check_policy(record)
        return
    if isinstance(record, AdapterRecord):
        check_adapter(record)
        return
    _at_least(record, "created_seconds")
    if not isinstance(record, ServiceAccount):
        for field in AMOUNTS:
            check_amount(field, getattr(record, field))
        check_budget(record.budget_nanodollars_per_month)
    if isinstance(record, Tenant | Project):
        _check_alerts(record.spend_alerts)
    match record:
        case Tenant():
            check_name("id", record.id)
            for field in ("kv_bytes", "stored_conversations", "stored_bytes"):
                _at_least(record, field)
            check_weight(record.weight)
            _at_least(record, "disabled_seconds")
        case Project():
            _match("id", record.id, _PROJECT_ID, "proj_ and 16 hexadecimal digits")
            check_name("tenant", record.tenant)
            check_name("name", record.name)
            _at_least(record, "archived_seconds")
        case ServiceAccount():
            _match("id", record.id, _ACCOUNT_ID, "svc_acct_ and 16 hexadecimal digits")
            _match("project", record.project, _PROJECT_ID, "proj_ and 16 hexadecimal digits")
            if not record.name:
                raise ValueError("name: must not be empty")
            _check_title(record.name)
            _at_least(record, "deleted_seconds")
        case Key():
            _check_key(record)


def check_name(field: str, name: str) -> None:
    """Check the name of a tenant or project.

    Raises:
        ValueError: what it may be.
    """
    _match(field, name, _NAME, "1 to 63 lower-case letters, digits and -, not starting with -")


def _check_key(key: Key) -> None:
    _match("id", key.id, _KEY_ID, "key_ and 16 hexadecimal digits")
    _match("project", key.project, _PROJECT_ID, "proj_ and 16 hexadecimal digits")
    if key.service_account:
        _match("service_account", key.service_account, _ACCOUNT_ID, "the id of a service account")
    _check_title(key.name)
    digests = [key.sha256]
    if key.old_secret is not None:
        digests.append(key.old_secret.sha256)
        if key.old_secret.until_seconds < 1:
            raise ValueError("old_secret.until_seconds: must be at least 1")
    for digest in digests:
        if len(digest) != DIGEST_BYTES:
            raise ValueError(f"sha256: has {len(digest)} bytes: must have {DIGEST_BYTES}")
    if not 1 <= len(key.scopes) <= MAX_SCOPES:
        raise ValueError(f"scopes: {len(key.scopes)} entries are out of range: 1 to {MAX_SCOPES}")
    for scope in key.scopes:
        _match("scopes", scope, _SCOPE, "a scope name, for example inference")
    if len(key.models) > MAX_MODELS:
        raise ValueError(f"models: {len(key.models)} entries exceed the limit of {MAX_MODELS}")
    for model in key.models:
        _match("models", model, _MODEL, "the name of a model or adapter")
    _at_least(key, "expires_seconds")
    _at_least(key, "revoked_seconds")


def _check_alerts(alerts: tuple[SpendAlert, ...]) -> None:
    if len(alerts) > MAX_ALERTS:
        raise ValueError(f"spend_alerts: {len(alerts)} entries exceed the limit of {MAX_ALERTS}")
    for alert in alerts:
        _match("spend_alerts", alert.id, _ALERT_ID, "spend_alert_ and 16 hexadecimal digits")
        if not 0 < alert.threshold_nanodollars <= MAX_BUDGET:
            raise ValueError(
                f"threshold_amount: {alert.threshold_nanodollars} nano-dollars are out of range: "
                f"1 to {MAX_BUDGET}"
            )
        if not 1 <= len(alert.recipients) <= MAX_RECIPIENTS:
            raise ValueError(
                f"recipients: {len(alert.recipients)} entries are out of range: 1 to "
                f"{MAX_RECIPIENTS}"
            )
        for text in alert.recipients:
            if not 1 <= len(text) <= MAX_RECIPIENT or not text.isprintable():
                raise ValueError(
                    f"recipients: each must have 1 to {MAX_RECIPIENT} printable characters"
                )
        if len(alert.subject_prefix) > MAX_TITLE or not alert.subject_prefix.isprintable():
            raise ValueError(f"subject_prefix: must have at most {MAX_TITLE} printable characters")


def _check_title(name: str) -> None:
    if len(name) > MAX_TITLE or not name.isprintable():
        raise ValueError(f"name: must have at most {MAX_TITLE} printable characters")


def _match(field: str, value: str, pattern: re.Pattern[str], what: str) -> None:
    if not pattern.fullmatch(value):
        raise ValueError(f"{field}: {value[:64]!r} is not {what}")


def _at_least(record: Record, field: str, least: int = 0) -> None:
    value: int = getattr(record, field)
    if value < least:
        raise ValueError(f"{field}: {value} is out of range: at least {least}")
