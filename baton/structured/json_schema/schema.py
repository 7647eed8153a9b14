"""Check a JSON Schema for unsupported features, by keyword and JSON path, without a tokenizer."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from baton.structured.errors import GrammarError, Path
from baton.structured.json_schema.constants import fatal_keyword
from baton.structured.json_schema.keywords import UNSUPPORTED, drop_idle
from baton.structured.limits import (
    MAX_ALTERNATIVES,
    MAX_DEPTH,
    MAX_INTERSECTED,
    MAX_ITEMS,
    MAX_OPTIONAL_PROPERTIES,
    MAX_PROPERTIES,
    MAX_REPEATS,
)
from baton.structured.pauses import Pauses

_UNSUPPORTED_SET = frozenset(UNSUPPORTED)
_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "$ref"})
_ONE = ("items", "additionalItems", "additionalProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_INNER = frozenset({*_ONE, *_LISTS, *_MAPS})
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BOUND = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_CONTAINERS = (dict, list)
_NUMBERS = (int, float)


@dataclass(slots=True)
class _Totals:
    properties: int = 0
    items: int = 0
    alternatives: int = 0


def parse_schema(text: str, pauses: Pauses) -> Any:
    """Return the value of a schema's text.

    Args:
        text: of at most `MAX_GRAMMAR_BYTES`.
        pauses: of the calling thread.

    Raises:
        GrammarError: it is not JSON, not a schema, or nested too deeply.
    """
    try:
        schema = msgspec.json.decode(text)
    except RecursionError:
        raise GrammarError(_too_deep()) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GrammarError(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise GrammarError("the schema must be an object, true or false")
    if _deeper_than(schema, MAX_DEPTH, pauses):
        raise GrammarError(_too_deep())
    return schema


def check_schema(schema: Any, pauses: Pauses) -> bool:
    """Reject schemas that are unsupported, or cost too much.

    Args:
        schema: as of `parse_schema`; keywords that have no effect and cannot be compiled are
            removed.
        pauses: of the calling thread.

    Returns:
        Whether any were removed.

    Raises:
        GrammarError: the first unsupported keyword, with its path.
    """
    totals = _Totals()
    known: dict[int, int] = {}
    changed = False
    for path, each in walk(schema):
        changed |= drop_idle(each)
        _check_keywords(path, each)
        _check_object(path, each, totals)
        _check_sizes(path, each, totals)
        if _COMBINED.isdisjoint(each):
            known[id(each)] = _own_patterns(each)
        elif _intersected(each, schema, known, pauses) > MAX_INTERSECTED:
            raise GrammarError(
                f"{shown(path)}: more than {MAX_INTERSECTED} patterns and formats for one value; "
                "combine them into one pattern"
            )
        pauses.take()
    return changed


def walk(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each subschema that is an object, with its path; data within a schema are skipped."""
    waiting: list[Iterator[tuple[Path, Any]]] = [iter([(path, schema)])]
    while waiting:
        for path, each in waiting[-1]:
            if isinstance(each, dict):
                yield path, each
                if not _INNER.isdisjoint(each):
                    waiting.append(_inner(path, each))
                    break
        else:
            waiting.pop()


def _inner(path: Path, schema: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the possible subschemas of a schema, with their paths."""
    for name in _MAPS:
        if isinstance(found := schema.get(name), dict):
            for key, value in found.items():
                yield (*path, name, key), value
    for name in _LISTS:
        if isinstance(found := schema.get(name), list):
            for at, value in enumerate(found):
                yield (*path, name, at), value
    for name in _ONE:
        if isinstance(found := schema.get(name), dict):
            yield (*path, name), found


def shown(path: Path) -> str:
    """Return a path as JSONPath."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            plain = _NAME.fullmatch(step) is not None
            text += f".{step}" if plain else f"[{msgspec.json.encode(step).decode()}]"
    return text


def check_repeats(text: str, where: str) -> None:
    """Reject a repetition with a large bound, in a regular expression or in Lark.

    Raises:
        GrammarError: there is one.
    """
    for found in _BOUND.finditer(text):
        most = max(int(number) for number in found.groups() if number)
        if most > MAX_REPEATS:
            raise GrammarError(
                f"{where}: a repetition of {most} exceeds the limit of {MAX_REPEATS}"
            )


def _check_keywords(path: Path, schema: Mapping[str, Any]) -> None:
    if not _UNSUPPORTED_SET.isdisjoint(schema):
        name = next(name for name in UNSUPPORTED if name in schema)
        raise GrammarError(
            f"{shown(path)}: the keyword {name} is not supported; omit it, or validate the "
            "output against it",
            (*path, name),
        )
    if name := fatal_keyword(schema):
        raise GrammarError(
            f"{shown((*path, name))}: the number -2^63, or one that rounds to it, is not "
            "supported; omit it, or use a string",
            (*path, name),
        )
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        check_repeats(pattern, shown((*path, "pattern")))


def _check_object(path: Path, schema: Mapping[str, Any], totals: _Totals) -> None:
    properties, least = schema.get("properties"), schema.get("minProperties")
    if properties is None and least is None:
        return
    names = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) and _strings(required) else set()
    totals.properties += len(names)
    if totals.properties > MAX_PROPERTIES:
        raise GrammarError(
            f"{shown((*path, 'properties'))}: more than {MAX_PROPERTIES} properties in the schema"
        )
    optional = len(names.keys() - needed)
    if optional > MAX_OPTIONAL_PROPERTIES:
        raise GrammarError(
            f"{shown((*path, 'properties'))}: {optional} optional properties exceed the limit of "
            f"{MAX_OPTIONAL_PROPERTIES} per object: list others in required"
        )
    if isinstance(least, int | float) and least > max(1, len(needed)):
        # Names beyond the listed ones may repeat, and then count once.
        raise GrammarError(
            f"{shown((*path, 'minProperties'))}: {least} is not supported above the number of "
            "required properties",
            (*path, "minProperties"),
        )


def _check_sizes(path: Path, schema: Mapping[str, Any], totals: _Totals) -> None:
    totals.items += max(_count(schema.get("minItems")), _count(schema.get("maxItems")))
    if totals.items > MAX_ITEMS:
        raise GrammarError(
            f"{shown(path)}: minItems and maxItems of the schema's arrays add up to more than "
            f"{MAX_ITEMS}; omit bounds that no output reaches"
        )
    for name in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(name), list):
            totals.alternatives += len(branches)
    if totals.alternatives > MAX_ALTERNATIVES:
        raise GrammarError(
            f"{shown(path)}: anyOf and oneOf of the schema have more than {MAX_ALTERNATIVES} "
            "branches; use enum for plain values"
        )


def _own_patterns(schema: Mapping[str, Any]) -> int:
    return ("pattern" in schema) + ("format" in schema)


def _intersected(schema: Any, root: Any, known: dict[int, int], pauses: Pauses) -> int:
    """Return how many patterns and formats apply to one value together, at most one too many.

    Args:
        schema: the subschema; definitions that it refers to are included.
        root: the whole schema.
        known: earlier results by the subschema's identity: each is visited once.
        pauses: of the calling thread.
    """
    if not isinstance(schema, dict):
        return 0
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = 0  # for schemas that refer to themselves
    pauses.take()
    found = _own_patterns(schema)
    if isinstance(reference := schema.get("$ref"), str):
        found += _intersected(_at(root, reference), root, known, pauses)
    for name in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(name)
        if isinstance(branches, list):
            each = [_intersected(branch, root, known, pauses) for branch in branches]
            found += sum(each) if name == "allOf" else max(each, default=0)
    known[id(schema)] = min(found, MAX_INTERSECTED + 1)
    return known[id(schema)]


def _at(root: Any, reference: str) -> Any:
    """Return the target of a reference within the schema; None for any other reference."""
    if not reference.startswith("#/"):
        return root if reference == "#" else None
    found = root
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _deeper_than(value: Any, most: int, pauses: Pauses) -> bool:
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(most):
        inner: list[Any] = []
        for each in level:
            pauses.take()
            values = each.values() if isinstance(each, dict) else each
            inner += [one for one in values if isinstance(one, _CONTAINERS)]
        level = inner
    return any(level)


def _too_deep() -> str:
    return f"the schema is nested deeper than {MAX_DEPTH} levels; use $defs and $ref"


def _strings(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _count(value: Any) -> int:
    return min(int(value), MAX_ITEMS + 1) if isinstance(value, _NUMBERS) else 0
