"""Objects whose pattern properties are all listed as named properties as well.

After those, a grammar would continue to the name of a further property, which does not exist, and
the sequence would end with an error.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher

from baton.structured.json_schema.schema import walk
from baton.structured.vocabulary import Vocabulary

MAX_TRIED = 64
"""Maximum objects tried per schema: each costs a separate grammar, half a millisecond."""
_NULL = {"type": "null"}
_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def name_patterns(vocabulary: Vocabulary, schema: Any) -> bool:
    """Merge the patterns' schemas into named properties, where patterns match no other names.

    Args:
        vocabulary: of the model.
        schema: as `check_schema` accepted it; is changed.

    Returns:
        Whether the schema was changed.
    """
    changed, tried = False, 0
    for _, each in walk(schema):
        named, patterns = each.get("properties"), each.get("patternProperties")
        if not (isinstance(named, dict) and isinstance(patterns, dict) and named and patterns):
            continue
        if each.get("additionalProperties") is not False or not _may_meet(named, patterns):
            continue
        tried += 1
        if tried > MAX_TRIED:
            break
        if _names_no_others(vocabulary, list(named), list(patterns)):
            each["properties"] = {
                name: _both(vocabulary, name, one, patterns) for name, one in named.items()
            }
            del each["patternProperties"]
            changed = True
    return changed


def _may_meet(names: dict[str, Any], patterns: dict[str, Any]) -> bool:
    try:
        return any(re.search(pattern, name) for pattern in patterns for name in names)
    except re.error:  # of another dialect
        return True


def _names_no_others(vocabulary: Vocabulary, names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return whether an object that has all the names can have no further property."""
    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, _NULL),
        "required": names,
        "patternProperties": dict.fromkeys(patterns, _NULL),
        "additionalProperties": False,
        "x-guidance": _SPACES,
    }
    matcher = vocabulary.matcher(LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    if matcher.is_error():
        return False
    begun = "{" + "".join(f"{json.dumps(name, ensure_ascii=False)}: null, " for name in names)
    if not matcher.consume_tokens(vocabulary.tokenize(begun)):
        return "NoExtension" in matcher.get_error()
    mask = np.zeros(vocabulary.words, np.uint32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    return "NoExtension" in matcher.get_error()


def _both(vocabulary: Vocabulary, name: str, schema: Any, patterns: dict[str, Any]) -> Any:
    """Return the schema of a property combined with those of the patterns that match its name."""
    more = [one for pattern, one in patterns.items() if _has(vocabulary, name, pattern)]
    return {"allOf": [schema, *more]} if more else schema


def _has(vocabulary: Vocabulary, name: str, pattern: str) -> bool:
    schema = {"type": "string", "const": name, "pattern": pattern}
    return not vocabulary.matcher(LLMatcher.grammar_from_json_schema(json.dumps(schema))).is_error()
