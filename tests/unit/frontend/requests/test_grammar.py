"""A request's grammar is compiled by the frontend, which refuses what cannot be kept."""

import pytest

from baton.engine.testing.random_tokenizer import make_tokenizer
from baton.errors import BatonError, Reason
from baton.grammar import Grammar
from baton.tokenizer_files import TokenizerFiles
from services.frontend.requests.grammar import check_grammar
from services.frontend.text.tokenizer import Tokenizer

NAME = "response_format"


async def test_what_cannot_be_kept_is_refused_as_the_client_calls_it() -> None:
    files = TokenizerFiles(make_tokenizer(512).to_str().encode())
    tokenizer = Tokenizer.load(files)
    await check_grammar(Grammar.of("json_schema", "{}"), NAME, tokenizer)
    for schema, told in (
        (
            '{"properties": {"a": {"not": {}}}}',
            r"\$\.properties\.a: the keyword not",
        ),
        ("{", "the schema is not JSON"),
    ):
        with pytest.raises(BatonError, match=told) as caught:
            grammar = Grammar.of("json_schema", schema)
            await check_grammar(grammar, NAME, tokenizer)
        assert (caught.value.reason, caught.value.field) == (
            Reason.INVALID_FIELD,
            NAME,
        )
