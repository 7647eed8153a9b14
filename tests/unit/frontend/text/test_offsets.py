"""Where tokens begin in the text that they are of, whatever bytes they have."""

from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from baton.request.stream_events import TokenLogprob
from services.frontend.openai.response.logprobs import CompletionLogprobs
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer
from tests.unit.frontend.conftest import KINDS, byte_fallback, byte_level

TEXTS = ["the the", "a 😀 b", "Ã© 世界 x y", "<think>é<eos>", "", "e\u0301 the"]


def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer(KINDS[kind](), ChatTemplate(None))


def assert_begins(begins: list[int], pieces: list[str], text: str) -> None:
    """Each whole token's text stands where it begins."""
    assert begins == sorted(begins)
    for begin, piece in zip(begins, pieces, strict=True):
        assert 0 <= begin <= len(text)
        if "\N{REPLACEMENT CHARACTER}" not in piece:
            assert text.startswith(piece, begin) or text.startswith(piece.lstrip(), begin)


def of_output(tokenizer: Tokenizer, ids: list[int], special: bool = False) -> list[int]:
    """Return the offsets of an output's tokens, taken one by one."""
    request: Any = ResolvedRequest.__new__(ResolvedRequest)
    object.__setattr__(request, "model", type("M", (), {"tokenizer": tokenizer}))
    object.__setattr__(request, "prompt", [])
    object.__setattr__(request, "special_text", special)
    counter = CompletionLogprobs(request)
    found = [counter.take([one], [TokenLogprob(-1.0, ())])["text_offset"] for one in ids]
    return [begin for (begin,) in found]


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_an_output_stand_where_they_begin(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode(text, special=False, around=False)
    shown = tokenizer.decode(ids)
    assert_begins(of_output(tokenizer, ids), tokenizer.token_texts(ids), shown)


def test_parts_of_a_character_begin_where_it_does() -> None:
    for tokenizer in (tokenizer_of("byte level"), tokenizer_of("byte fallback")):
        ids = tokenizer.encode("😀he", around=False)
        assert len(ids) > 2
        he = tokenizer.encode("he", around=False)
        parts = len(ids) - len(he)
        assert of_output(tokenizer, ids)[: parts + 1] == [0] * parts + [1]
        assert tokenizer.offsets("😀he", ids)[: parts + 1] == [0] * parts + [1]


def test_tokens_without_text_begin_where_the_next_does() -> None:
    tokenizer = tokenizer_of("byte level")
    (end,) = tokenizer.encode("<eos>", around=False)
    he = tokenizer.encode("he", around=False)
    assert of_output(tokenizer, [end, *he, end, *he])[:1] == [0]
    assert of_output(tokenizer, [*he, end])[-1] == 2
    assert of_output(tokenizer, [end, *he, end], special=True)[-1] == 7
    assert tokenizer.offsets("he<eos>he", tokenizer.encode("he<eos>he", around=False))[-1] >= 7


def beginning(made: tokenizers.Tokenizer, token: str) -> Tokenizer:
    """Return a tokenizer that begins each text with a token."""
    made.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, made.token_to_id(token))]
    )
    return Tokenizer(made, ChatTemplate(None))


@pytest.mark.parametrize(
    "made", [beginning(byte_level(), "<eos>"), beginning(byte_fallback(), "<s>")]
)
@given(st.lists(st.sampled_from(["the", " the", "😀", "é", "世", " ", "\n", "he"])).map("".join))
def test_tokens_of_an_echoed_prompt_stand_where_they_begin(made: Tokenizer, text: str) -> None:
    ids = made.encode(text)
    begins = made.offsets(text, ids)
    assert len(begins) == len(ids)
    assert begins[:1] == [0]
    pieces = ["", *made.token_texts(ids[1:])]  # the first token has no text of its own
    assert_begins(begins, pieces, text)
    kept = ids[-3:]
    assert made.offsets(text, kept) == begins[-3:]  # of a prompt that was truncated
    assert made.offsets(text, ids[:3]) == begins[:3]


def test_a_prompt_that_its_text_does_not_lead_to_is_gone_along() -> None:
    tokenizer = tokenizer_of("byte level")
    (end,) = tokenizer.encode("<eos>", around=False)
    spelled = tokenizer.encode("h", around=False) + tokenizer.encode("e", around=False)
    assert tokenizer.offsets("he", [end, *spelled, end]) == [0, 0, 1, 2]
    plain = tokenizer.encode("<eos>x", special=False, around=False)
    assert tokenizer.offsets("<eos>x", plain)[-1] == 5
