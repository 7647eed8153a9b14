"""Grammars of requests are compiled before anything else is done for them."""

import asyncio

from baton.errors import BatonError, Reason, invalid_field
from baton.request.grammar import Grammar
from baton.structured.errors import GrammarError, GrammarsBusyError
from services.frontend.requests.validate import unsupported
from services.frontend.text.tokenizer import Tokenizer


async def check_grammar(grammar: Grammar, name: str, tokenizer: Tokenizer) -> None:
    """Compile a grammar for a model's tokens, off the event loop, or refuse the request.

    Args:
        grammar: as `baton.sampling.check` took it.
        name: what the client calls it, for errors.
        tokenizer: of the model.

    Raises:
        BatonError: INVALID_FIELD, it cannot be kept; UNSUPPORTED_PARAMETER, no grammar can be, with
            the model's tokenizer; OVERLOADED, too many wait to be compiled.
    """
    try:
        grammars = tokenizer.grammars
        if grammars is None:
            grammars = await asyncio.to_thread(tokenizer.load_grammars)
    except ValueError as error:
        raise unsupported(
            name, why=f"{error}; leave it out, or ask a model whose tokenizer is of byte pairs"
        ) from None
    try:
        await grammars.check(grammar)
    except GrammarsBusyError as error:
        raise BatonError(Reason.OVERLOADED, str(error), retry_after=1.0) from None
    except GrammarError as error:
        raise invalid_field(name, str(error)) from None
