"""A request's grammar is compiled by the frontend, which refuses what cannot be kept."""

import asyncio
import threading
import time

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from baton.engine.testing.random_tokenizer import make_tokenizer
from baton.errors import BatonError, Reason
from baton.request.grammar import Grammar
from baton.structured.grammars import Grammars
from baton.structured.vocabulary import Vocabulary
from baton.worker.wire.tokenizer_files import TokenizerFiles
from services.frontend.requests.validation.grammar import check_grammar
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


@pytest.mark.parametrize("name", ["response_format", "structured_outputs.json", "grammar"])
async def test_a_tokenizer_that_has_no_bytes_is_no_internal_error(name: str) -> None:
    words = models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(words)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = Tokenizer.load(TokenizerFiles(backend.to_str().encode()))
    told = f"^{name} is not supported: tokenizer.json cannot be used .*; omit it, or use"
    for _ in range(2):  # the second time it is known
        with pytest.raises(BatonError, match=told) as caught:
            await check_grammar(Grammar.of("json_schema", "{}"), name, tokenizer)
        assert caught.value.reason is Reason.UNSUPPORTED_PARAMETER
        assert caught.value.field == name


async def test_requests_that_come_together_read_the_vocabulary_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads, load = [], Vocabulary.load
    come = threading.Barrier(4)

    def slow(data: bytes) -> Vocabulary:
        loads.append(data)
        time.sleep(0.1)
        return load(data)

    monkeypatch.setattr(Vocabulary, "load", slow)
    tokenizer = Tokenizer.load(TokenizerFiles(make_tokenizer(512).to_str().encode()))

    def loaded() -> Grammars:
        come.wait(10)
        return tokenizer.load_grammars()

    found = await asyncio.gather(*(asyncio.to_thread(loaded) for _ in range(4)))
    assert len(loads) == 1
    assert all(one is found[0] for one in found)
