"""Implementation of `baton classes`: changes or lists the classes' records, as text or JSON."""

from typing import Any

from baton.cli.admin.target import Target
from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.tenancy.admin.classes import ClassAdministration
from baton.tenancy.records.classes import FIELDS, ClassPolicy

_FLAGS = (
    "--floor, --ceiling, --requests-at-once, --weight, --deadline, --ttft-target, --itl-target, "
    "--wait, --refuse, --max-wait"
)


def set_class(target: Target, name: str, changes: dict[str, Any]) -> None:
    """Change the policy of a class."""
    if not changes:
        raise CommandError(f"Nothing to change: set at least one of {_FLAGS}.")
    changed = target.read(
        lambda etcd: ClassAdministration(etcd, target.cluster).update(name, **changes)
    )
    target.print(f"Changed the priority class {name}.", **_fields(changed))


def list_classes(target: Target) -> None:
    """Print the policy of each class."""
    classes = target.read(lambda etcd: ClassAdministration(etcd, target.cluster).classes())
    table = TextTable(("class", "floor", "ceiling", "concurrent", "weight", "late", "seconds"))
    for one in classes:
        table.add(
            one.id,
            f"{one.floor:.0%}",
            f"{one.ceiling or 1.0:.0%}",
            str(one.requests_at_once or "any"),
            f"{one.weight or 1.0:g}",
            "queue" if one.waits else "reject",
            _times(one),
        )
    target.list(table, [_fields(one) for one in classes])


def _fields(record: ClassPolicy) -> dict[str, Any]:
    return {"id": record.id, **{name: getattr(record, name) for name in FIELDS}}


def _times(record: ClassPolicy) -> str:
    """Return the times that are set, as text."""
    names = [name for name in FIELDS if name.endswith("_seconds") and getattr(record, name)]
    told = (
        f"{name.removesuffix('_seconds').replace('_', ' ')} {getattr(record, name):g}"
        for name in names
    )
    return ", ".join(told) or "none set"
