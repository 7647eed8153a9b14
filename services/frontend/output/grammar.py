"""The grammar of an output: reasoning, then tool calls, a form, or text.

Written in llguidance's Lark. Text is anything up to a tag, which is a special token if the
vocabulary has one, and text otherwise; only a call may follow the tag. Where the lexer treats a tag
as quoted, the grammar does too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from baton.errors import invalid_field
from baton.request.grammar import Grammar
from baton.structured.json_schema.bounds import Bounds
from services.frontend.output.custom.rules import input_rule
from services.frontend.output.definitions import CallMode, TextInput, ToolDefinition
from services.frontend.output.families.family import CallForm
from services.frontend.output.lexer import QUOTES
from services.frontend.output.xml_grammar import write_parameters

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
NO_ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
_ANNOTATIONS = ("description", "title", "default", "examples", "$comment")
_quoted = partial(json.dumps, ensure_ascii=False)
_TEXT = "/(?s:.*)/"
_SPACE = r"/[ \t\r\n]{1,4}/"
_META = re.compile(r"[\\.+*?()|\[\]{}^$/]")


def arguments_schema(tool: ToolDefinition) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments, which are an object.

    A function with named parameters has no others, unless its schema says so.
    """
    schema = tool.parameters
    if not schema:
        return NO_ARGUMENTS
    closed = {"type": "object", **schema}
    if "properties" in schema and "additionalProperties" not in schema:
        closed["additionalProperties"] = not {
            "patternProperties",
            "anyOf",
            "allOf",
            "oneOf",
        }.isdisjoint(schema)
    return closed


def embedded(schema: Mapping[str, Any], bounds: Bounds) -> str:
    """Return the bounded text of a schema for embedding in Lark, without redundant keywords."""
    from baton.structured.json_schema.schema import (
        walk,  # imports numpy, which is not needed before
    )

    bare = deepcopy(dict(schema))
    for _, each in walk(bare):
        for name in _ANNOTATIONS:
            each.pop(name, None)
    text = bounds.added_to(json.dumps(bare, ensure_ascii=False))
    return text.replace("&", "\\u0026")  # an operator of Lark


class AnswerGrammar:
    """Writes the grammar of one request's outputs.

    Args:
        tags: tokens of the vocabulary that mark parsed parts, by their text.
        bounds: of JSON, where its schema sets none.
    """

    def __init__(self, tags: Mapping[str, int], bounds: Bounds) -> None:
        self._tags = tags
        self._embedded = partial(embedded, bounds=bounds)
        longest_first = sorted(tags, key=len, reverse=True)
        self._tag_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._rules: list[str] = []

    def reasoning(self, start: str, end: str, *, opened: bool) -> str:
        """Return a rule for the reasoning before an answer. It is optional unless `opened`."""
        if end in self._tags:
            self._rules.append(f"thoughts: /(?s:.*)/ {self.literal(end)} ({_SPACE})?")
        else:
            self._rules.append(f"last_thought[lazy]: /(?s:.*){_escaped(end)}/")
            self._rules.append(f"thoughts: last_thought ({_SPACE})?")
        return "thoughts" if opened else f"({self.literal(start)} thoughts)?"

    def calls(
        self,
        form: CallForm,
        tools: Sequence[ToolDefinition],
        schemas: Mapping[str, Mapping[str, Any]],
        *,
        parallel: bool,
    ) -> str:
        """Return a rule for calls, after the first one's tag.

        Raises:
            BatonError: INVALID_FIELD: the grammar of a custom tool's input cannot be enforced.
        """
        for index, tool in enumerate(tools):
            head = self.literal(form.head.replace("{name}", tool.name))
            schema = schemas[tool.name]
            if tool.text is not None and tool.text.form is not None:
                body = self._input(tool.text, f"input{index}", xml=form.xml)
            elif form.xml:
                body = write_parameters(schema, f"p{index}", self._rules, self._embedded)
            else:
                body = f"%json {self._embedded(schema)}"
                self._rules.append(f"arguments{index}: {body}")
                body = f"arguments{index}"
            self._rules.append(f"call{index}: {head} {body} {self.literal(form.tail)}")
        self._rules.append("call: " + " | ".join(f"call{i}" for i in range(len(tools))))
        more = f"({self.literal(form.between)} call)*" if parallel else ""
        opening = " | ".join(map(self.literal, form.opening))
        self._rules.append(f"calls: ({opening}) call {more} {self.literal(form.close)}")
        return "calls"

    def _input(self, given: TextInput, name: str, *, xml: bool) -> str:
        assert given.form is not None
        try:
            return input_rule(given.form, name, self._rules, xml=xml)
        except ValueError as error:
            raise invalid_field(given.field, str(error)) from None

    def answer(self, form: CallForm, calls: CallMode, body: str) -> str:
        """Return a rule for an output that is calls, or may be calls or `body`.

        Args:
            form: of the calls.
            calls: whether there must or may be calls.
            body: a rule for the alternative; empty: text.
        """
        tag = form.tag
        if not tag:
            optional = form.optional_tag
            marked = f"({self.literal(optional)})? calls" if optional in self._tags else "calls"
            if calls is CallMode.REQUIRED:
                return marked
            text = body or r"/([ \t\r\n]*[^{ \t\r\n](?s:.*))?/"
            return f"({text} | {marked})" if calls is CallMode.AUTO else (body or _TEXT)
        special = tag in self._tags
        if calls is CallMode.NONE:
            return body or (_TEXT if special else self._without(tag))
        tagged = f"{self.literal(tag)} calls"
        if calls is CallMode.REQUIRED:
            return tagged
        if body:
            return f"({body} | {tagged})"
        if special:
            return f"{_TEXT} ({tagged})?"
        self._rules.append(f"before[lazy]: /{_up_to(tag)}/")
        return f"(before calls | {_TEXT})"

    def form(self, grammar: Grammar) -> str:
        """Return a rule for a client's form.

        Raises:
            ValueError: it cannot be embedded in another grammar.
        """
        match grammar.kind:
            case "json_schema":
                self._rules.append(f"form: %json {grammar.text}")
            case "choice":
                options = " | ".join(map(_quoted, grammar.options()))
                self._rules.append(f"form: FORM\nFORM: {options}")
            case "regex":
                self._rules.append(
                    "form: /" + re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", grammar.text) + "/"
                )
            case _:
                raise ValueError("a Lark grammar cannot be combined with tools or reasoning")
        return "form"

    def write(self, *parts: str) -> Grammar:
        """Return the grammar of an output that matches these rules in sequence."""
        return Grammar.of("lark", "\n".join([f"start: {' '.join(parts)}", *self._rules]))

    def literal(self, text: str) -> str:
        """Return a pattern for a text, with special tokens where it contains their texts."""
        pieces, at = [], 0
        for found in self._tag_pattern.finditer(text):
            pieces += [_quoted(text[at : found.start()])] if found.start() > at else []
            pieces.append(f"<[{self._tags[found[0]]}]>")
            at = found.end()
        if at < len(text):
            pieces.append(_quoted(text[at:]))
        return " ".join(pieces)

    def _without(self, tag: str) -> str:
        self._rules.append(f"TEXT: {_TEXT} & ~/{_up_to(tag)}(?s:.*)/")
        return "TEXT"


def _up_to(tag: str) -> str:
    quotes = "".join(QUOTES)
    return f"((?s:.*)[^{quotes}])?{_escaped(tag)}"


def _escaped(text: str) -> str:
    return _META.sub(lambda found: "\\" + found[0], text)
