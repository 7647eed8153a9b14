"""A vocabulary that grammars are compiled for."""

import pytest

from baton.engine.testing.random_tokenizer import end_tokens, make_tokenizer
from baton.structured.vocabulary import Vocabulary

VOCAB = 512
PADDED = 530
"""Checkpoints have more ids than their tokenizers."""


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    tokenizer = make_tokenizer(VOCAB)
    return Vocabulary.load(tokenizer.to_str().encode(), PADDED, end_tokens(tokenizer))
