"""Implementation of `baton policies`: changes or lists the records of policies."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.cli.admin.policies.options import PolicyOptions
from baton.cli.admin.target import Target
from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.tenancy.admin.policies import PolicyAdministration
from baton.tenancy.records.policies import ModelPolicy

_MAX_DIGITS = 12
_NONE = "none"


def set_policy(target: Target, model: str, options: PolicyOptions) -> None:
    """Create the policy of a model, or replace all of it."""
    queueing = options.queueing or ["premium"]
    wanted = ModelPolicy(
        id=model,
        fallbacks=tuple(options.fallback or ()),
        wait_seconds=options.wait_seconds,
        fallback="ask" if options.ask else "allow",
        queueing=() if queueing == [_NONE] else tuple(queueing),
        classes=tuple(options.class_ or ()),
        tenants=tuple(options.tenant or ()),
        context_tokens=_context(options.context or ()),
    )
    record = target.read(
        lambda etcd: PolicyAdministration(etcd, target.cluster).set(
            wanted, missing=options.allow_missing
        )
    )
    target.print(f"Set the policy of {model}.", **_fields(record))


def remove_policy(target: Target, model: str) -> None:
    """Remove the policy of a model."""
    target.read(lambda etcd: PolicyAdministration(etcd, target.cluster).remove(model))
    target.print(f"Removed the policy of {model}.", model=model)


def list_policies(target: Target) -> None:
    """Print the policies."""
    found = target.read(lambda etcd: PolicyAdministration(etcd, target.cluster).policies())
    table = TextTable(("model", "fallbacks", "beyond", "classes", "tenants", "context"))
    for one in found:
        context = ", ".join(f"{tier}={tokens}" for tier, tokens in one.context_tokens.items())
        fallbacks = ", ".join(one.fallbacks)
        table.add(
            one.id,
            f"{fallbacks} (if asked)" if fallbacks and one.fallback == "ask" else fallbacks,
            f"{one.wait_seconds:g} s" if fallbacks else "",
            ", ".join(one.classes) or "all",
            ", ".join(one.tenants) or "all",
            context,
        )
    target.list(table, [_fields(one) for one in found])


def _context(given: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        tier, _, tokens = text.partition("=")
        if not tokens.isdecimal() or len(tokens) > _MAX_DIGITS or tier in found:
            raise CommandError(f"--context {text!r} is not TIER=TOKENS, once for each tier.")
        found[tier] = int(tokens)
    return found


def _fields(record: ModelPolicy) -> dict[str, Any]:
    fields = msgspec.to_builtins(record)
    return {"model": fields.pop("id"), **fields}
