"""Policies of models: who may ask for one, how much, and what answers when it is busy."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from baton.settings.values import MODEL_NAME, TIERS
from baton.tenancy.records.classes import CLASSES

MAX_FALLBACKS = 8
MAX_POLICIES = 1024
MAX_TENANTS = 256
MAX_WAIT_SECONDS = 3600.0
MAX_CONTEXT_TOKENS = 100_000_000
FALLBACKS = ("allow", "ask")
_MODEL = re.compile(MODEL_NAME)
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class ModelPolicy(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """What applies to requests for one model or adapter, whoever runs it."""

    id: str
    """Name of the model or adapter."""
    fallbacks: tuple[str, ...] = ()
    """Models that answer instead of it, the first choice first."""
    wait_seconds: float = 5.0
    """Predicted seconds in the queue beyond which they do; 0: whenever a request would wait."""
    fallback: str = "allow"
    """Which requests they answer: `allow`, all that do not refuse; `ask`, those that allow it."""
    queueing: tuple[str, ...] = ("premium",)
    """Priority classes whose requests queue unless they allow a fallback themselves."""
    classes: tuple[str, ...] = ()
    """Priority classes that may ask for it; none: all."""
    tenants: tuple[str, ...] = ()
    """Tenants that may ask for it; none: all."""
    context_tokens: Mapping[str, int] = {}
    """The most tokens of prompt and output together, by the tenant's tier."""
    removed: bool = False
    version: int = 1


def check_policy(record: ModelPolicy) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    _check_model("model", record.id)
    if len(record.fallbacks) > MAX_FALLBACKS:
        raise ValueError(
            f"fallbacks: {len(record.fallbacks)} entries exceed the limit of {MAX_FALLBACKS}"
        )
    for name in record.fallbacks:
        _check_model("fallbacks", name)
        if name == record.id:
            raise ValueError(f"fallbacks: {name} cannot be a fallback of itself")
    if len(set(record.fallbacks)) < len(record.fallbacks):
        raise ValueError("fallbacks: each model can be named once")
    if not 0 <= record.wait_seconds <= MAX_WAIT_SECONDS:
        raise ValueError(f"wait_seconds: must be 0 to {MAX_WAIT_SECONDS:g}")
    if record.fallback not in FALLBACKS:
        raise ValueError(f"fallback: {record.fallback[:64]!r} is not {' or '.join(FALLBACKS)}")
    for field in ("queueing", "classes"):
        for name in getattr(record, field):
            if name not in CLASSES:
                raise ValueError(f"{field}: {name[:64]!r} is not one of {', '.join(CLASSES)}")
    if len(record.tenants) > MAX_TENANTS:
        raise ValueError(
            f"tenants: {len(record.tenants)} entries exceed the limit of {MAX_TENANTS}"
        )
    for name in record.tenants:
        if not _TENANT.fullmatch(name):
            raise ValueError(f"tenants: {name[:64]!r} is not the name of a tenant")
    for tier, tokens in record.context_tokens.items():
        if tier not in TIERS:
            raise ValueError(f"context_tokens: {tier[:64]!r} is not one of {', '.join(TIERS)}")
        if not 2 <= tokens <= MAX_CONTEXT_TOKENS:
            raise ValueError(f"context_tokens: of {tier}, must be 2 to {MAX_CONTEXT_TOKENS}")


def check_policy_with_others(record: ModelPolicy, others: Iterable[ModelPolicy]) -> None:
    """Check that no model falls back to itself by way of others.

    Models in a circle that are all busy would send each other their requests.

    Raises:
        ValueError: the field and the circle.
    """
    policies = {one.id: one for one in others if not one.removed and one.id != record.id}
    if not record.removed and len(policies) >= MAX_POLICIES:
        raise ValueError(f"model: there are {len(policies)} policies: at most {MAX_POLICIES}")
    came_from = dict.fromkeys(record.fallbacks, record.id)
    ahead = list(record.fallbacks)
    while ahead:
        name = ahead.pop()
        for after in policies[name].fallbacks if name in policies else ():
            if after == record.id:
                path = [record.id, name]
                while path[-1] != record.id:
                    path.append(came_from[path[-1]])
                circle = " → ".join(reversed(path))
                raise ValueError(f"fallbacks: they form a circle: {circle} → {record.id}")
            if after not in came_from:
                came_from[after] = name
                ahead.append(after)


def _check_model(field: str, name: str) -> None:
    if not _MODEL.fullmatch(name):
        raise ValueError(f"{field}: {name[:64]!r} is not the name of a model or adapter")
