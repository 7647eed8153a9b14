"""docs/configuration.md, from the classes of baton.settings."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, JsonValue, SecretStr
from pydantic.fields import FieldInfo

from baton.request.prices import Price
from baton.settings import SERVICE_SETTINGS, ProcessSettings
from baton.settings.describe import text
from baton.settings.names import SettingName, leaves
from baton.settings.values import Bytes
from scripts.docs.table import code, table

HEAD = ("setting, and key in the file", "variable", "flag", "type", "default", "bounds", "meaning")
INTRODUCTION = """# Configuration

This page lists every setting of every Baton process, for operators who run a cluster. A process reads its
settings from flags, environment variables, files and defaults, in this order of precedence. `baton config show`
prints every setting with its value and source; `baton serve PROCESS --help` lists the flags of one process. A
process with an invalid setting does not start; the error names the setting, its bounds and where to change it.

## The file

`--config baton.toml`, or `BATON_CONFIG`, names one file for all processes; `baton up`, `baton demo` and `baton
config show` accept it too. A top-level table applies to every process that has this group. A table under a
process's name applies to this process only and takes precedence:

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

The processes are `frontend`, `router`, `prefill`, `decode`, `kvstore` and `picker`. Write bytes as numbers or as text
such as `"512MiB"`. A table or key that no process knows is an error in every process.
`[models.NAME]` tables describe the models of `baton up` ([models.md](models.md#on-one-machine)); processes only
check them.

## The environment

`BATON_HTTP_PORT` sets `http.port`: the group precedes the first underscore. A process ignores the variables of
other processes, so processes can share an environment.

`BATON_NATIVE_DIRECTORY` is the directory of compiled libraries: the torch engine's operators and the router's
table of blocks and scores. The default is `build/native` in a checkout. For an installed wheel it is
`$XDG_STATE_HOME/baton/VERSION` (`~/.local/state/baton/VERSION`), in addition to the libraries in the wheel.

`BATON_NATIVE_VARIANT` selects one variant of the engine's operators (`x86-64-v4-bf16`, `x86-64-v4`, `x86-64-v3`
or `armv8`). By default each machine uses the best variant that its CPU supports. Variants with and without
`bf16` compute different sums, and workers with different sums share no KV: on mixed CPUs, consider `x86-64-v3`
everywhere.

## Secrets

No flag takes a secret's value. Set the variable itself, or use one of the two ways in which Kubernetes and
Docker mount secrets:

- `BATON_TELEMETRY_OTLP_HEADERS_FILE=/run/secrets/otlp`, or the flag `--telemetry-otlp-headers-file`: a file
  with this secret. The variable must not be set at the same time.
- `BATON_SECRETS_DIR=/run/secrets`: a directory with one file per secret, named after the setting:
  `telemetry.otlp_headers`.

A process does not start if a secret's file is empty, unreadable or writable by everyone. It logs a warning if
everyone can read the file. `baton config show`, errors and logs hide secrets.
"""

_VALUES: dict[Any, str] = {Path: "paths", Price: "prices"}
"""Values of settings, as the tables show them."""


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
    """Return a sentence about common settings that have another default in this process."""
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
