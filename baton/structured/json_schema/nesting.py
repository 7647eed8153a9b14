"""Limit a JSON Schema to values that nest no deeper than a given number of levels.

Where it allows any value, it is replaced by a chain of definitions, each one level deeper, the last
without arrays and objects. Definitions that lead to themselves are copied once for each level; the
last copy contains none of them. Both apply only where the schema itself sets no structure: the
levels that it spells out are kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from baton.structured.json_schema.schema import walk
from baton.structured.pauses import Pauses

MAX_COPIED = 4_000
"""Maximum subschemas of all copies together; larger definitions get fewer levels."""
_LEAST_LEVELS = 4
"""With fewer levels, recursive definitions are not bounded."""
_PREFIX = "x-bounds."
_ANY = f"{_PREFIX}any."
_SCALARS: Mapping[str, Any] = {"type": ["null", "boolean", "number", "string"]}
_DEFINITIONS = ("$defs", "definitions")
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
_SCHEMAS = ("items", "additionalItems", "additionalProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties")
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "$schema", "$id", "x-bounds"}
)
_ROOT = "#"


def nested(schema: Any, levels: int, pauses: Pauses) -> Any:
    """Return an equivalent schema with bounded nesting; the schema itself, if nothing is unbounded.

    Args:
        schema: as of `check_schema`; not changed.
        levels: levels of arrays and objects, at least 1.
        pauses: of the calling thread.
    """
    if not isinstance(schema, dict):
        return schema
    return _Nesting(schema, levels, pauses).written()


class _Nesting:
    def __init__(self, schema: dict[str, Any], levels: int, pauses: Pauses) -> None:
        self._schema = schema
        self._pauses = pauses
        self._levels = levels
        self._any_used = False
        units = {_ROOT: {k: v for k, v in schema.items() if k not in _DEFINITIONS}}
        for container in _DEFINITIONS:
            definitions = schema.get(container)
            if isinstance(definitions, dict):
                for name, one in definitions.items():
                    escaped = name.replace("~", "~0").replace("/", "~1")
                    units[f"#/{container}/{escaped}"] = one
        self._units = units
        self._order = {reference: at for at, reference in enumerate(units)}
        self._copied = self._cyclic()
        size = sum(1 for one in self._copied for _ in walk(units[one]))
        self._copies = min(levels, MAX_COPIED // size) if size else 0
        if self._copies < _LEAST_LEVELS and self._copies < levels:
            self._copied = frozenset()

    def written(self) -> Any:
        made: dict[str, Any] = {}
        for level in range(self._copies if self._copied else 0):
            for reference in sorted(self._copied, key=self._order.__getitem__):
                made[self._name(reference, level)] = self._copy(
                    self._units[reference], reference, level
                )
        root = self._copy(self._units[_ROOT], "", 0)
        if _ROOT in self._copied:
            kept = {k: v for k, v in self._schema.items() if k.startswith("$")}
            root = kept | {"$ref": self._reference(_ROOT, 0)}
            root.pop("$defs", None)
        for container in _DEFINITIONS:
            if isinstance(old := self._schema.get(container), dict):
                # Definitions that are copied stay, for references from outside the cycles.
                root[container] = {name: self._copy(one, "", 0) for name, one in old.items()}
        if self._any_used:
            for level in range(self._levels):
                inner = {"$ref": f"#/$defs/{_ANY}{level + 1}"}
                made[f"{_ANY}{level}"] = {
                    "anyOf": [
                        _SCALARS,
                        {"type": "array", "items": inner},
                        {"type": "object", "additionalProperties": inner},
                    ]
                }
            made[f"{_ANY}{self._levels}"] = _SCALARS
        if not made:
            return self._schema
        root["$defs"] = {**root.get("$defs", {}), **made}
        return root

    def _references(self, schema: Any) -> Iterator[str]:
        for _, each in walk(schema):
            self._pauses.take()
            reference = each.get("$ref")
            if isinstance(reference, str) and reference in self._units:
                yield reference

    def _cyclic(self) -> frozenset[str]:
        """Return the definitions on a path from a cycle to a cycle."""
        leads = {name: set(self._references(one)) for name, one in self._units.items()}
        for backwards in (False, True):
            if backwards:
                turned: dict[str, set[str]] = {name: set() for name in leads}
                for name, targets in leads.items():
                    for target in targets & leads.keys():
                        turned[target].add(name)
                leads = turned
            while ends := [name for name, targets in leads.items() if not targets & leads.keys()]:
                for name in ends:
                    del leads[name]
                self._pauses.take()
        return frozenset(leads)

    def _name(self, reference: str, level: int) -> str:
        return f"{_PREFIX}{self._order[reference]}.{level}"

    def _reference(self, reference: str, level: int) -> str:
        return f"#/$defs/{self._name(reference, level)}"

    def _copy(self, schema: Any, unit: str, level: int) -> Any:
        """Return a copy of a subschema.

        Args:
            schema: the subschema.
            unit: the copied definition that contains it; empty: the definition is not copied.
            level: of the copy.
        """
        self._pauses.take()
        if _is_any(schema):
            self._any_used = True
            return {"$ref": f"#/$defs/{_ANY}0"}
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference in self._copied:
            # Each reference back is one level deeper; without one, paths end.
            back = bool(unit) and self._order[reference] <= self._order[unit]
            if level + back >= self._copies:
                return False
            made["$ref"] = self._reference(reference, level + back)
        for name in _SCHEMAS:
            if isinstance(inner := schema.get(name), dict) or inner is True:
                made[name] = self._copy(inner, unit, level)
        for name in (*_LISTS, "items"):
            if isinstance(several := schema.get(name), list):
                # With other alternatives, this one, which allows any value, need not be satisfied
                # with them.
                kept = name == "allOf" and not all(map(_is_any, several))
                made[name] = [
                    one if kept and _is_any(one) else self._copy(one, unit, level)
                    for one in several
                ]
        for name in _MAPS:
            if isinstance(named := schema.get(name), dict):
                made[name] = {key: self._copy(one, unit, level) for key, one in named.items()}
        if not any(name in schema for name in _COMBINING):
            self._close(made)
        return made

    def _close(self, made: dict[str, Any]) -> None:
        """Close what a subschema leaves open: other properties, and items."""
        types = made.get("type", ["object", "array"])
        allowed = types if isinstance(types, list) else [types]
        open_: list[str] = []
        if "object" in allowed:
            open_.append("additionalProperties")
        if "array" in allowed:
            open_.append("additionalItems" if isinstance(made.get("items"), list) else "items")
        for name in open_:
            if name not in made:
                self._any_used = True
                made[name] = {"$ref": f"#/$defs/{_ANY}0"}


def _is_any(schema: Any) -> bool:
    return schema is True or (isinstance(schema, dict) and schema.keys() <= _ANNOTATIONS)
