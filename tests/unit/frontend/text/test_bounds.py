"""What is refused before it is read is what would have been refused after it, and only that."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from services.frontend.http.values import check_values
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer, TooManyTokensError
from tests.unit.frontend.conftest import byte_fallback, byte_level

TEXTS = st.text(alphabet='a,:[]{}"\\\n é', max_size=12)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)


def values(data: Any) -> int:
    """Return how many values there are: containers, what is in them, and names."""
    if isinstance(data, dict):
        return 1 + sum(1 + values(value) for value in data.values())
    return 1 + sum(map(values, data)) if isinstance(data, list) else 1


def refuses(body: bytes, most: int) -> bool:
    try:
        check_values(body, most)
    except BatonError as error:
        assert error.reason is Reason.BODY_TOO_LARGE
        return True
    return False


@given(data=JSON, escaped=st.booleans())
@example(data=['"', "\\", '\\"', ",,,,,,,,,,,,,,"], escaped=False)
def test_bodies_are_refused_by_their_values(data: Any, escaped: bool) -> None:
    body = json.dumps(data, ensure_ascii=escaped).encode()
    count = values(data)
    assert not refuses(body, count)
    assert refuses(body, count - 1)


@pytest.mark.parametrize(
    "body", [b'"' * 9_000, b"[" * 9_000, b'{"a":"' + b"\\" * 9_000, b"," * 9_000]
)
def test_what_is_no_json_is_left_to_the_parser_or_refused(body: bytes) -> None:
    refuses(body, 100)


class Counted:
    """A tokenizer that notes how long the texts are that it is given."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self.characters = 0

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._backend.encode_batch_fast(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@given(text=st.text(alphabet="the x yé世😀<>nk", max_size=200), most=st.integers(1, 60))
def test_texts_are_refused_by_their_tokens(
    backend: tokenizers.Tokenizer, text: str, most: int
) -> None:
    tokenizer = Tokenizer(backend, ChatTemplate(None))
    ids = tokenizer.encode(text)
    if len(ids) <= most:
        assert tokenizer.encode(text, most) == ids
    else:
        with pytest.raises(TooManyTokensError):
            tokenizer.encode(text, most)


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_little_of_a_long_text_is_tokenized(kind: Callable[[], tokenizers.Tokenizer]) -> None:
    counted: Any = Counted(kind())
    tokenizer = Tokenizer(counted, ChatTemplate(None))
    with pytest.raises(TooManyTokensError):
        tokenizer.encode("the " * 1_000_000, 1000)
    with pytest.raises(TooManyTokensError):
        tokenizer.encode("é the " * 1000, 1000)
    assert counted.characters <= 8000
