"""Compile a grammar's text for computing masks, or report its errors."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from llguidance import LLMatcher

from baton.request.grammar import Grammar
from baton.structured.beginning import beginning_error
from baton.structured.digits import digits_needed
from baton.structured.errors import GrammarError, Path
from baton.structured.json_schema.bounds import Bounds, take_bounds
from baton.structured.json_schema.nesting import nested
from baton.structured.json_schema.patterns import name_patterns
from baton.structured.json_schema.schema import (
    check_repeats,
    check_schema,
    parse_schema,
    shown,
    walk,
)
from baton.structured.limits import BLAME_SECONDS, MAX_INTERSECTED, MAX_LARK_ALTERNATIVES
from baton.structured.pauses import Pauses
from baton.structured.vocabulary import Vocabulary

_EMBEDDED = re.compile(r"%json\s*(?=\{)")
_SPACES = json.dumps(
    {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
)
"""At most one space, after commas and colons: a model that may write more can do so without end."""
_SHOWN = 400  # characters of the library's message
_ONE_OF = "oneOf constraints"
_ROW = "Parser Error: Current row"
_PATTERNS = ("pattern", "patternProperties")
_RANGE = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_KEYWORDS: Mapping[str, Sequence[str]] = {
    _ONE_OF: ("oneOf",),
    "patternProperty regexes": ("patternProperties",),
    "regex parse error": _PATTERNS,
    "lookarounds not supported": _PATTERNS,
    "Failed to generate regex for": _RANGE,
}
"""Keywords that an error may be about, by the start of the library's message."""
_REWORDED = {
    _ONE_OF: "branches of oneOf cannot be distinguished; use anyOf, or give each branch a required "
    "property with its own const",
    _ROW: "too many ways to continue; list more properties in required, or use fewer branches",
    "Failed to generate regex for": (
        "the bounds are too far from zero; omit bounds that no output reaches"
    ),
    "lexer error: too many": "too complex: repetitions have too many states; use smaller bounds",
    "NoExtension": "no output can be complete: the grammar refers to itself without an end",
}


class CompiledGrammar:
    """A grammar compiled for one vocabulary, at its beginning. Immutable: threads may copy it."""

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher, digits: int = 0) -> None:
        self.vocabulary = vocabulary
        self.digits = digits
        """Maximum number of consecutive digits in a number; 0: any."""
        self._matcher = matcher
        if digits:
            _ = vocabulary.numbers  # not while a step waits for a mask

    def begin(self) -> LLMatcher:
        """Return a separate matcher for one output."""
        return self._matcher.deep_copy()


def compile_grammar(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
    """Compile a grammar that `Grammar.check` took. Blocks for milliseconds; see `limits`.

    Raises:
        GrammarError: it needs an unsupported feature, or costs too much.
    """
    pauses = Pauses()
    parts = _Parts(vocabulary, pauses)
    match grammar.kind:
        case "json_schema":
            parts.add(grammar.text)
            written = [LLMatcher.grammar_from_json_schema(text) for text in parts.whole()]
        case "regex":
            check_repeats(grammar.text, "regex")
            written = [LLMatcher.grammar_from_regex(grammar.text)]
        case "choice":
            # A single terminal: alternatives of a rule would each be an item of the parser.
            options = " | ".join(msgspec.json.encode(one).decode() for one in grammar.options())
            written = [LLMatcher.grammar_from_lark(f"start: OPTION\nOPTION: {options}")]
        case _:
            _read_lark(grammar.text, parts)
            written = [LLMatcher.grammar_from_lark(text) for text in parts.whole()]
    error = ""
    for one in written:  # a schema whose bounds are not supported is used without them
        matcher = vocabulary.matcher(one)
        error = matcher.get_error() if matcher.is_error() else beginning_error(vocabulary, matcher)
        if not error:
            return CompiledGrammar(vocabulary, matcher, parts.digits)
    schema = parts.schemas[0] if grammar.kind == "json_schema" else None
    raise _told(vocabulary, grammar.kind, schema, error, pauses)


class _Parts:
    """Text of a grammar whose schemas have been given whitespace rules and bounds.

    Args:
        vocabulary: of the model.
        pauses: of the calling thread.
    """

    def __init__(self, vocabulary: Vocabulary, pauses: Pauses) -> None:
        self._vocabulary = vocabulary
        self._pauses = pauses
        self._plain: list[str] = []
        self._bounded: list[str] = []
        self.schemas: list[Any] = []
        self.digits = 0

    def text(self, text: str) -> None:
        """Add text that is not a schema."""
        self._plain.append(text)
        self._bounded.append(text)

    def add(self, text: str) -> None:
        """Add a schema.

        Raises:
            GrammarError: it uses an unsupported feature.
        """
        schema = parse_schema(text, self._pauses)
        taken = take_bounds(schema)
        changed = taken is not None
        changed |= check_schema(schema, self._pauses)
        changed |= name_patterns(self._vocabulary, schema)
        if changed:
            text = msgspec.json.encode(schema).decode()
        bounds = taken or Bounds()
        plain = bounded = _spaced(schema, text)
        if bounds.levels:
            changed = nested(schema, bounds.levels, self._pauses)
            if changed is not schema:
                bounded = _spaced(changed, msgspec.json.encode(changed).decode())
        if bounds.digits:
            needed = digits_needed(schema, self._pauses)
            self.digits = max(self.digits, bounds.digits, needed)
        self.schemas.append(schema)
        self._plain.append(plain)
        self._bounded.append(bounded)

    def whole(self) -> list[str]:
        """Return the texts to try, the bounded one first."""
        texts = ["".join(self._bounded), "".join(self._plain)]
        return texts if self._bounded != self._plain else texts[:1]


def _spaced(schema: Any, text: str) -> str:
    """Return a schema's text with the whitespace that is allowed between its values.

    The option is inserted into the text: serializing the schema again would hold the interpreter's
    lock for milliseconds.
    """
    if not isinstance(schema, dict):
        return text
    return f'{text.rstrip()[:-1]}{"," if schema else ""}"x-guidance":{_SPACES}}}'


def _read_lark(text: str, parts: _Parts) -> None:
    """Read a grammar, and the schemas that are embedded in it.

    Raises:
        GrammarError: it costs too much, or embeds an unsupported schema.
    """
    check_repeats(text, "lark")
    if '"x-guidance"' in text:
        raise GrammarError("lark: x-guidance is not supported in an embedded schema; omit it")
    if text.count("&") > MAX_INTERSECTED:
        raise GrammarError(f"lark: more than {MAX_INTERSECTED} intersections (&)")
    decoder = json.JSONDecoder()
    bars = at = 0
    for found in _EMBEDDED.finditer(text):
        if found.start() < at:
            continue
        try:
            _, end = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            raise GrammarError(
                "lark: what follows %json is not a JSON Schema, or is nested too deep"
            ) from None
        bars += text.count("|", at, found.start())
        parts.text(text[at : found.end()])
        try:
            parts.add(text[found.end() : end])
        except GrammarError as error:
            raise GrammarError(f"lark: in %json, {error}") from None
        at = end
    parts.text(text[at:])
    bars += text.count("|", at)
    if bars > MAX_LARK_ALTERNATIVES:
        raise GrammarError(
            f"lark: {bars} alternatives exceed the limit of {MAX_LARK_ALTERNATIVES}; use choice "
            "instead"
        )


def _told(
    vocabulary: Vocabulary, kind: str, schema: Any, error: str, pauses: Pauses
) -> GrammarError:
    """Return the message to the client for the library's error."""
    text = next((said for mark, said in _REWORDED.items() if error.startswith(mark)), "")
    if not text:
        text = " ".join(error.replace("<non-verbose/>", "").split())[:_SHOWN]
    if not isinstance(schema, dict):
        return GrammarError(f"{kind}: {text}")
    if error.startswith(_ROW) and (widest := _widest(schema)):
        return GrammarError(f"{widest}: {text}")
    keywords = next((names for mark, names in _KEYWORDS.items() if error.startswith(mark)), ())
    blamed = _blamed(vocabulary, schema, error, keywords, pauses)
    if blamed is None:
        return GrammarError(f"{kind}: {text}")
    path, subschema = blamed
    keyword = next((name for name in keywords if name in subschema), "")
    if keyword:
        return GrammarError(f"{shown((*path, keyword))}: {text}", (*path, keyword))
    return GrammarError(f"{shown(path) if path else kind}: {text}")


def _widest(schema: dict[str, Any]) -> str:
    """Return the path with the most branches; empty: there are none."""
    most, found = 1, ""
    for path, each in walk(schema):
        for keyword in ("anyOf", "oneOf"):
            branches = each.get(keyword)
            if isinstance(branches, list) and len(branches) > most:
                most, found = len(branches), shown((*path, keyword))
    return found


def _blamed(
    vocabulary: Vocabulary,
    schema: dict[str, Any],
    error: str,
    keywords: Sequence[str],
    pauses: Pauses,
) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the innermost subschema that alone fails in the same way, with its path; None: not
    found.

    Args:
        vocabulary: of the model.
        schema: the whole schema.
        error: of the library.
        keywords: one of which the error is about; empty: unknown.
        pauses: of the calling thread.
    """
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    blamed: tuple[Path, Mapping[str, Any]] | None = None
    until = time.thread_time() + BLAME_SECONDS
    for path, each in walk(schema):
        if time.thread_time() > until:
            break
        if keywords and not any(name in each for name in keywords):
            continue
        if not keywords and path[:1] in (("$defs",), ("definitions",)):
            continue
        if blamed is not None and len(path) <= len(blamed[0]):
            continue
        if "#/properties" in str(each.get("$ref", "")):
            continue
        pauses.begin()
        text = json.dumps(definitions | dict(each))
        pauses.take()
        alone = vocabulary.matcher(LLMatcher.grammar_from_json_schema(text))
        if alone.is_error() and alone.get_error()[:40] == error[:40]:
            blamed = path, each
    return blamed
