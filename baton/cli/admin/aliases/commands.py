"""Implementation of `baton aliases`: changes or lists the records of aliases, as text or JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.cli.admin.target import Target
from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.tenancy.admin.aliases import AliasAdministration
from baton.tenancy.records.aliases import MAX_TARGET_WEIGHT, AliasTarget, ModelAlias


def set_alias(target: Target, name: str, models: Sequence[str], allow_missing: bool) -> None:
    """Create an alias, or change what it means."""
    targets = tuple(map(_target, models))
    record = target.read(
        lambda etcd: AliasAdministration(etcd, target.cluster).point(
            name, targets, missing=allow_missing
        )
    )
    target.print(f"{name} now means {_meaning(record)}.", **_fields(record))


def remove_alias(target: Target, name: str) -> None:
    """Remove an alias."""
    target.read(lambda etcd: AliasAdministration(etcd, target.cluster).remove(name))
    target.print(f"Removed the alias {name}.", alias=name)


def list_aliases(target: Target) -> None:
    """Print the aliases."""
    aliases = target.read(lambda etcd: AliasAdministration(etcd, target.cluster).aliases())
    table = TextTable(("alias", "means"))
    for one in aliases:
        table.add(one.id, _meaning(one))
    target.list(table, [_fields(one) for one in aliases])


def _target(text: str) -> AliasTarget:
    model, given, weight = text.partition("=")
    if not given:
        return AliasTarget(model)
    if not weight.isdecimal() or len(weight) > len(str(MAX_TARGET_WEIGHT)):
        raise CommandError(
            f"{text!r} is not MODEL or MODEL=WEIGHT, with a weight of 1 to {MAX_TARGET_WEIGHT}."
        )
    return AliasTarget(model, int(weight))


def _meaning(record: ModelAlias) -> str:
    """Return the targets with their parts, as text."""
    if len(record.targets) == 1:
        return record.targets[0].model
    total = sum(one.weight for one in record.targets)
    return ", ".join(f"{one.model} ({one.weight / total:.3g})" for one in record.targets)


def _fields(record: ModelAlias) -> dict[str, Any]:
    return {"alias": record.id, "targets": msgspec.to_builtins(record.targets)}
