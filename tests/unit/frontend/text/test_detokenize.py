"""Text in pieces is the whole text, for tokenizers of every kind and whatever the ids."""

import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@given(data=st.data())
def test_deltas_join_to_the_whole_text(backend: tokenizers.Tokenizer, data: st.DataObject) -> None:
    vocab = backend.get_vocab_size()
    # Ids beyond the vocabulary exist where a model's output layer is padded.
    ids = data.draw(st.lists(st.integers(0, vocab + 1), max_size=30))
    tokenizer = Tokenizer(backend, ChatTemplate(None))
    detokenizer = tokenizer.detokenizer()
    deltas = [detokenizer.push(token) for token in ids]
    assert "".join(deltas) + detokenizer.flush() == backend.decode(ids, skip_special_tokens=True)


@given(text=st.text(alphabet=" theé世😀", max_size=20))
def test_real_text_comes_without_a_broken_character(
    backend: tokenizers.Tokenizer, text: str
) -> None:
    tokenizer = Tokenizer(backend, ChatTemplate(None))
    ids = tokenizer.encode(text)
    detokenizer = tokenizer.detokenizer()
    for token in ids:
        assert REPLACEMENT not in detokenizer.push(token)


@given(data=st.data())
def test_what_follows_a_prompt_is_what_it_adds_to_it(
    backend: tokenizers.Tokenizer, data: st.DataObject
) -> None:
    # A prompt that ends inside of a character has no text of its own to add to.
    special = backend.get_added_tokens_decoder()
    ends = [
        token
        for text, token in sorted(backend.get_vocab().items())
        if not text.startswith("<0x")
        and token not in special
        and REPLACEMENT not in backend.decode([token])
    ]
    some = st.integers(0, backend.get_vocab_size() - 1)
    prompt = [*data.draw(st.lists(some, max_size=12)), data.draw(st.sampled_from(ends))]
    ids = data.draw(st.lists(some, max_size=12))
    tokenizer = Tokenizer(backend, ChatTemplate(None))
    detokenizer = tokenizer.detokenizer(prompt)
    said = "".join(detokenizer.push(token) for token in ids) + detokenizer.flush()
    assert tokenizer.decode(prompt) + said == tokenizer.decode(prompt + ids)
