"""A tokenizer trained once, on little."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from train import tokenizer as text_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return text_tokenizer.train(seed=0, conversations=500)


@pytest.fixture(scope="session")
def tokenizer_dir(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    text_tokenizer.save(tokenizer, directory, 4096)
    return directory
