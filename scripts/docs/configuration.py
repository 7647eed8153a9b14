"""docs/configuration.md, from the classes of baton.settings."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, JsonValue, SecretStr
from pydantic.fields import FieldInfo

from baton.prices import Price
from baton.settings import SERVICE_SETTINGS, ProcessSettings
from baton.settings.describe import text
from baton.settings.names import SettingName, leaves
from baton.settings.values import Bytes
from scripts.docs.table import code, table

HEAD = ("setting, and key in the file", "variable", "flag", "type", "default", "bounds", "meaning")
INTRODUCTION = """# Configuration

Every process takes its settings from flags, the environment, files and defaults, in this order: what comes
first wins. `baton config show` prints every setting with its value and where that came from;
`baton serve PROCESS --help` lists the flags of one process. A setting that is wrong stops the process with a
sentence that names it, what it may be and where to change it.

## The file

`--config baton.toml`, or `BATON_CONFIG`, names one file for all processes; `baton up`, `baton demo` and
`baton config show` take it too. A table at the top is a group of every process that has it, a table under a
process's name is of that process only and wins:

```toml
drain_seconds = 20          # every process

[etcd]
endpoints = ["10.0.0.1:2379", "10.0.0.2:2379"]

[engine]                    # prefill and decode workers
kv_bytes = "8GiB"

[frontend.http]
port = 9000

[decode.engine]
max_running = 128
```

The processes are `frontend`, `router`, `prefill`, `decode` and `kvstore`. Bytes are numbers or texts such as
`"512MiB"`. A table or key that no process has is an error in all of them.

## The environment

`BATON_HTTP_PORT` is `http.port`: the group is what stands before the first underscore. A variable of another
process's setting is passed over, so that processes may share an environment.

`BATON_NATIVE_DIRECTORY` is the directory of compiled libraries: the torch engine's operators and the router's
table of blocks and scores. Unset, it is `build/native` of a checkout, and of an installed wheel
`$XDG_STATE_HOME/baton/VERSION` (`~/.local/state/baton/VERSION`), beside what the wheel itself brings.

`BATON_NATIVE_VARIANT` names the one variant of the engine's operators to take (`x86-64-v4-bf16`, `x86-64-v4`,
`x86-64-v3` or `armv8`). Unset, each machine takes the best that it runs; sums with and without `bf16` differ, and
workers whose sums differ share no KV, so a cluster of unlike CPUs may want `x86-64-v3` on all of them.

## Secrets

Secrets have no flag with their value. Besides the variable itself there are two ways, as Kubernetes and
Docker mount them:

- `BATON_TELEMETRY_OTLP_HEADERS_FILE=/run/secrets/otlp`, or the flag `--telemetry-otlp-headers-file`: a file
  with this secret. The variable must not be set at the same time.
- `BATON_SECRETS_DIR=/run/secrets`: a directory with a file per secret, named like the setting:
  `telemetry.otlp_headers`.

A file that is empty, cannot be read or may be changed by anyone stops the process; one that anyone may read
is a warning in the log. Secrets are hidden in `baton config show`, in errors and in logs.
"""

_VALUES: dict[Any, str] = {Path: "paths", Price: "prices"}
"""What tables hold."""


def page() -> str:
    """Return the page. Processes with the same settings share a table."""
    common = {name.path for name, _ in leaves(ProcessSettings)}
    processes: dict[str, list[str]] = {}
    for process, kind in SERVICE_SETTINGS.items():
        processes.setdefault(_own_defaults(kind) + _rows(kind, common), []).append(process)
    parts = [INTRODUCTION, "\n## Every process\n\n", _rows(ProcessSettings, set())]
    for rows, names in processes.items():
        parts.append(f"\n## {' and '.join(names)}\n\n{rows}")
    return "".join(parts)


def _rows(kind: type[BaseModel], without: set[tuple[str, ...]]) -> str:
    rows = []
    for name, field in leaves(kind):
        if name.path in without:
            continue
        rows.append(
            (
                code(name.dotted),
                code(name.env),
                code(name.flag),
                _type(field),
                _default(kind, name, field),
                _bounds(field),
                name.help,
            )
        )
    return table(HEAD, rows)


def _own_defaults(kind: type[ProcessSettings]) -> str:
    """Return a sentence about settings of every process that have another default here."""
    given = {}
    for group, field in kind.model_fields.items():
        base = ProcessSettings.model_fields.get(group)
        if base is not None and isinstance(field.default, BaseModel):
            for part in sorted(field.default.model_fields_set):
                given[f"{group}.{part}"] = text(getattr(field.default, part))
    told = [f"`{name}` is {value}" for name, value in given.items()]
    return f"By default {', '.join(told)}.\n\n" if told else ""


def _default(kind: type[BaseModel], name: SettingName, field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "see meaning"
    if name.path == ("role",):
        return "the process's"
    value = field.get_default()
    if _is_bytes(field) and isinstance(value, int):
        return code(_size(value))
    return code(text(value))


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _is_bytes(field: FieldInfo) -> bool:
    validator = Bytes.__metadata__[0]
    return validator in field.metadata


def _type(field: FieldInfo) -> str:
    kind: Any = field.annotation
    if _is_bytes(field):
        return "bytes"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(code(str(one)) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    if get_origin(kind) is dict:
        _, value = get_args(kind)
        if value is JsonValue:
            return "table, or JSON"
        return f"table of {_VALUES.get(value, 'bytes')}"
    if Path in (kind, *get_args(kind)):
        return "path"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return "secret" if kind is SecretStr else names[kind]


def _bounds(field: FieldInfo) -> str:
    found = []
    for one in field.metadata:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            bound = getattr(one, attribute, None)
            if bound is not None:
                size = _size(int(bound)) if _is_bytes(field) else text(float(bound))
                found.append(f"{sign} {size}")
        if getattr(one, "min_length", None):
            found.append("not empty")
        if getattr(one, "pattern", None):
            found.append(code(one.pattern))
    return ", ".join(found)
