"""Detects a model's family from its chat template, and selects how to parse its outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from baton.kv.keys import token_bytes
from services.frontend.output.definitions import ToolUse
from services.frontend.output.families import hermes, llama3, mistral, qwen3_coder
from services.frontend.output.families.family import Family
from services.frontend.output.lexer import Lexer, LexerState, Table
from services.frontend.output.states import Expect, Space, Words
from services.frontend.text.tokenizer import Tokenizer

AUTO, NONE = "auto", "none"
FAMILIES = {
    one.name: one
    for one in (
        hermes.FAMILY,
        qwen3_coder.FAMILY,
        llama3.FAMILY,
        mistral.LIST_FAMILY,
        mistral.NAME_FAMILY,
    )
}
THINK, THINK_END = "<think>", "</think>"
_PLAIN = Family("plain", {"text": Words("text", {})})
_TAIL_TOKENS = 8
"""Tokens of a prompt's end: more than a tag and the following space have."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How a model writes reasoning and calls."""

    family: Family | None
    """None: its chat template writes no known kind of call."""
    table: Table
    """The table with the family's states."""
    plain: Table
    """The table without them."""
    reasoning: bool
    """Whether it may write reasoning before its answer."""

    def reader(
        self,
        use: ToolUse | None,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        seed: int,
        request_id: str,
    ) -> "AnswerReader | None":
        """Return the reader of a request's outputs; None: they are plain text.

        Args:
            use: the tools of the request; None: it has none.
            tokenizer: of the model.
            prompt: its tokens.
            seed: of its sampling.
            request_id: its id.
        """
        callable_tools = use.callable_tools if use is not None else ()
        if not (callable_tools or self.reasoning):
            return None
        family = self.family if callable_tools and self.family is not None else _PLAIN
        table = self.table if callable_tools else self.plain
        digest = sha256(f"{request_id}\0{seed}\0".encode())
        digest.update(token_bytes(prompt))
        return AnswerReader(
            table,
            self.start(tokenizer, prompt, table),
            {tool.name: tool.parameters for tool in callable_tools},
            family,
            digest.digest(),
        )

    def start(self, tokenizer: Tokenizer, prompt: Sequence[int], table: Table) -> str:
        """Return the state that an output begins in: the prompt may have opened its reasoning, or
        closed it."""
        if not self.reasoning:
            return table.start
        tail = b"".join(map(tokenizer.piece, prompt[-_TAIL_TOKENS:])).rstrip()
        if tail.endswith(THINK_END.encode()):
            return table.start
        return "think_begun" if tail.endswith(THINK.encode()) else "think_or_not"


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Makes the lexers of a request's outputs."""

    table: Table
    start: str
    schemas: Mapping[str, Mapping[str, Any] | None]
    family: Family
    digest: bytes
    """Digest of the request: a resumed request has the same ids of calls, another one does not."""

    def lexer(self, choice: int) -> Lexer:
        """Return the lexer of one output."""
        return Lexer(self.table, self.schemas, partial(self._id, choice), self.start)

    def _id(self, choice: int, index: int) -> str:
        return self.family.make_id(sha256(self.digest + f"{choice}.{index}".encode()).hexdigest())


def answer_format(tokenizer: Tokenizer, tool_format: str, reasoning_format: str) -> AnswerFormat:
    """Return how a model writes its outputs.

    Args:
        tokenizer: of the model.
        tool_format: one of FAMILIES, AUTO (detected from its chat template), or NONE.
        reasoning_format: `think`, AUTO, or NONE.
    """
    template = tokenizer.template
    family = FAMILIES.get(tool_format)
    if tool_format == AUTO:
        family = family_of(template.tool_source)
    reasoning = reasoning_format == "think"
    if reasoning_format == AUTO:
        reasoning = THINK_END in template.source or THINK_END in template.tool_source
    tags, is_special = tokenizer.tags, tokenizer.is_special
    plain = _with_reasoning(_PLAIN)
    shown = family or _PLAIN
    return AnswerFormat(
        family,
        Table.bind(_with_reasoning(shown), shown.start, tags, is_special),
        Table.bind(plain, _PLAIN.start, tags, is_special),
        reasoning,
    )


def family_of(template: str) -> Family | None:
    """Return the family whose calls a chat template writes; None: an unknown one, or none."""
    if qwen3_coder.FUNCTION in template:
        return qwen3_coder.FAMILY
    if mistral.OPEN in template:
        return mistral.NAME_FAMILY if mistral.ARGS in template else mistral.LIST_FAMILY
    if hermes.OPEN in template:
        return hermes.FAMILY
    if llama3.TAG in template or ("ipython" in template and '"parameters": ' in template):
        return llama3.FAMILY
    return None


def _with_reasoning(family: Family) -> dict[str, LexerState]:
    return {
        **family.states,
        "think_or_not": Expect({THINK: "think_begun"}, family.start),
        "think_begun": Space("think"),
        "think": Words("reasoning", {THINK_END: "think_ended"}),
        "think_ended": Space(family.start),
    }
