"""Compilation of a grammar for a model's tokens, or rejection of the request."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from baton.request.grammar import Grammar
from baton.structured.errors import GrammarError, GrammarsBusyError
from services.frontend.requests.refusals import unsupported
from services.frontend.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from baton.structured.grammars import Grammars


_MAX_RELAXED = 8
"""The most keywords that are omitted, one by one, as the library reports them."""


async def check_grammar(
    grammar: Grammar, name: str, tokenizer: Tokenizer, *, strict: bool = True
) -> Grammar:
    """Compile a grammar for a model's tokens, off the event loop, or reject the request.

    Args:
        grammar: a grammar that `baton.sampling.check` accepted.
        name: the client's name for it, for errors.
        tokenizer: the tokenizer of the model.
        strict: whether the whole schema must be enforced. Otherwise keywords that cannot be
            enforced are omitted.

    Returns:
        The grammar, or the part that can be enforced.

    Raises:
        BatonError: INVALID_FIELD: the grammar cannot be enforced; UNSUPPORTED_PARAMETER: the
            model's tokenizer supports no grammars; OVERLOADED: too many grammars wait to be
            compiled.
    """
    try:
        grammars = tokenizer.grammars
        if grammars is None:
            grammars = await asyncio.to_thread(tokenizer.load_grammars)
    except ValueError as error:
        raise unsupported(
            name, why=f"{error}; omit it, or use a model with a byte-pair tokenizer"
        ) from None
    try:
        try:
            await grammars.check(grammar)
        except GrammarError as error:
            if strict or not error.keyword:
                raise
            return await _relaxed(grammar, grammars)
    except GrammarsBusyError as error:
        raise BatonError(Reason.OVERLOADED, str(error), retry_after=1.0) from None
    except GrammarError as error:
        raise invalid_field(name, str(error)) from None
    return grammar


async def _relaxed(grammar: Grammar, grammars: "Grammars") -> Grammar:
    """Return the grammar of a JSON Schema without the keywords that cannot be enforced.

    Raises:
        GrammarError: the schema has another problem.
        GrammarsBusyError: too many grammars wait to be compiled.
    """
    from baton.structured.json_schema.relaxed import drop, relaxed  # imports numpy, as grammars do

    schema = await asyncio.to_thread(relaxed, grammar.text)
    for _ in range(_MAX_RELAXED):
        made = Grammar.of("json_schema", msgspec.json.encode(schema).decode())
        try:
            await grammars.check(made)
            return made
        except GrammarError as error:
            if not error.keyword:
                raise
            drop(schema, error.keyword)
    raise GrammarError("json_schema: too many of its keywords are not supported")
