"""Implementation of `baton auto`: changes or lists the rules of `auto`, as text or JSON."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from baton.cli.admin.target import Target
from baton.cli.shared.errors import CommandError
from baton.cli.shared.table import TextTable
from baton.tenancy.admin.auto import AutoAdministration
from baton.tenancy.records.auto import AutoRule, AutoRules

MAX_FILE_BYTES = 1024 * 1024
_FIELDS = tuple(name for name in AutoRules.__struct_fields__ if name not in ("id", "version"))
_SHOWN = tuple(name for name in AutoRule.__struct_fields__ if name not in ("name", "models"))


def set_rules(target: Target, file: Path, allow_missing: bool) -> None:
    """Replace all rules by those of a file."""
    wanted = read_rules(file)
    record = target.read(
        lambda etcd: AutoAdministration(etcd, target.cluster).set(wanted, missing=allow_missing)
    )
    count = f"{len(record.rules)} rules" if len(record.rules) != 1 else "1 rule"
    target.print(f"auto now has {count}, and else means {record.models[0]}.", **_fields(record))


def remove_rules(target: Target) -> None:
    """Remove all rules."""
    target.read(lambda etcd: AutoAdministration(etcd, target.cluster).remove())
    target.print("Removed the rules of auto.", models=[], rules=[])


def list_rules(target: Target) -> None:
    """Print the rules."""
    record = target.read(lambda etcd: AutoAdministration(etcd, target.cluster).rules())
    table = TextTable(("rule", "models"), note_heading="where")
    for rule in () if record is None else record.rules:
        table.add(rule.name, ", ".join(rule.models), note=conditions_of(rule))
    if record is not None:
        table.add("", ", ".join(record.models), note="no rule matches")
    target.list(table, [] if record is None else [_fields(record)])


def read_rules(file: Path) -> AutoRules:
    """Return the rules in a TOML or JSON file.

    Raises:
        CommandError: it is too large, neither of both, or has an unknown field.
    """
    if file.stat().st_size > MAX_FILE_BYTES:
        raise CommandError(f"{file} has more than {MAX_FILE_BYTES} bytes.")
    text = file.read_text(errors="replace")
    try:
        found = msgspec.json.decode(text) if file.suffix == ".json" else tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError) as error:
        raise CommandError(
            f"{file} is not {'JSON' if file.suffix == '.json' else 'TOML'}: {error}."
        ) from None
    _check_fields(file, found)
    try:
        return msgspec.convert(found, AutoRules)
    except msgspec.ValidationError as error:
        raise CommandError(f"{file}: {error}.") from None


def conditions_of(rule: AutoRule) -> str:
    """Return the conditions of a rule, as text."""
    told = []
    for name in _SHOWN:
        match getattr(rule, name):
            case True:
                told.append(name)
            case False if name != "cheapest":
                told.append(f"no {name}")
            case tuple() as values if values:
                told.append(f"{name} {'|'.join(values)}")
            case int() as number if number:
                told.append(f"{name} {number}")
    return ", ".join(told)


def _check_fields(file: Path, found: Any) -> None:
    """Check that no field is misspelt: a record ignores those that it does not know."""
    if not isinstance(found, dict):
        raise CommandError(f"{file} has no fields: it needs models, and may have rules.")
    rules = found.get("rules")
    parts = [("", found, _FIELDS)]
    parts += [
        (f"rule {str(rule.get('name', ''))[:64]}: ", rule, AutoRule.__struct_fields__)
        for rule in (rules if isinstance(rules, list) else ())
        if isinstance(rule, dict)
    ]
    for where, fields, known in parts:
        for name in fields:
            if name not in known:
                raise CommandError(
                    f"{file}: {where}{str(name)[:64]!r} is not a field; fields: {', '.join(known)}."
                )


def _fields(record: AutoRules) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return {name: fields[name] for name in _FIELDS if name in fields}
