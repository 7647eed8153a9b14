"""The grammar of arguments that a model writes as XML."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from services.frontend.output.families.qwen3_coder import PARAMETER, VALUE_END
from services.frontend.output.xml_arguments import types_of

_quoted = partial(json.dumps, ensure_ascii=False)
_VALUE_END = VALUE_END.replace("/", "\\/")


def write_parameters(
    schema: Mapping[str, Any],
    name: str,
    rules: list[str],
    embedded: Callable[[Mapping[str, Any]], str],
) -> str:
    """Return a rule for the parameters of a call, in the order of the schema's properties.

    A parameter that may be a string is any text, or one of the strings that the schema lists;
    others are JSON that the schema allows.

    Args:
        schema: of the arguments.
        name: prefix of the names of rules.
        rules: receives the required rules.
        embedded: returns a schema's text for embedding in Lark.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        if schema.get("additionalProperties") is False:
            return ""
        rules.append(f"{name}v[lazy]: /(?s:.*)\\n{_VALUE_END}\\n/")
        rules.append(f"{name}: (/{PARAMETER}[^>\\n]{{1,64}}>\\n/ {name}v)*")
        return name
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    parts = []
    for index, (key, value) in enumerate(properties.items()):
        rule = f"{name}v{index}"
        end = _quoted(f"\n{VALUE_END}\n")
        if "string" not in types_of(schema, key):
            whole = {k: schema[k] for k in ("$defs", "definitions") if k in schema}
            inner = value if isinstance(value, Mapping) else {}
            rules.append(f"{rule}: %json {embedded({**whole, **inner})}")
            body = f"{rule} {end}"
        elif listed := _listed(value):
            rules.append(f"{rule}: " + " | ".join(map(_quoted, listed)))
            body = f"{rule} {end}"
        else:
            limits = value if isinstance(value, Mapping) else {}
            low, high = limits.get("minLength", 0), limits.get("maxLength", "")
            size = f"{{{low},{high}}}" if low or high != "" else "*"
            rules.append(f"{rule}[lazy]: /(?s:.){size}\\n{_VALUE_END}\\n/")
            body = rule
        begin = _quoted(f"{PARAMETER}{key}>\n")
        parts.append(f"{begin} {body}" if key in needed else f"({begin} {body})?")
    rules.append(f"{name}: {' '.join(parts)}")
    return name


def _listed(schema: Any) -> list[str]:
    """Return the strings that a schema lists; empty: it lists none, or not only strings."""
    if not isinstance(schema, Mapping):
        return []
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return []
    return values
