"""Prompts for what stands between two texts."""

import pytest
from tokenizers import AddedToken

from baton.errors import BatonError, Reason
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer, TooManyTokensError
from tests.unit.frontend.conftest import byte_level

FAMILY = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


def tokenizer(*added: str) -> Tokenizer:
    backend = byte_level()
    backend.add_special_tokens([AddedToken(text, special=True) for text in added])
    return Tokenizer(backend, ChatTemplate(None))


def test_both_texts_stand_before_the_output() -> None:
    made = tokenizer(*FAMILY)
    ids = made.encode_infill("ab", "cd")
    assert made.decode(ids, special=True) == "<fim_prefix>ab<fim_suffix>cd<fim_middle>"
    assert made.decode(made.encode_infill("", "cd")) == "cd"
    assert made.encode_infill("ab", "cd", 7) == ids
    with pytest.raises(TooManyTokensError):
        made.encode_infill("ab", "cd", 6)


def test_special_tokens_in_the_texts_are_text_if_they_shall_be() -> None:
    made = tokenizer(*FAMILY)
    ids = made.encode_infill("<fim_middle>", "x", special=False)
    middle = made.encode_infill("", "x")[-1]
    assert ids.count(middle) == 1
    assert made.decode(ids) == "<fim_middle>x"


def test_a_model_without_such_tokens_says_so() -> None:
    with pytest.raises(BatonError) as caught:
        tokenizer(*FAMILY[:2]).encode_infill("ab", "cd")
    assert (caught.value.reason, caught.value.field) == (Reason.UNSUPPORTED_PARAMETER, "suffix")
