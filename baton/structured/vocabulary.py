"""A model's tokens for grammars: their bytes, and those that end an output."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from baton.structured.digits import NumberTokens
from baton.structured.limits import PARSER


class Vocabulary:
    """Data shared by all grammars of a model. Any thread may use it.

    Masks are rows of 32-bit words, bit i % 32 of word i // 32 for token i.
    """

    def __init__(self, tokenizer: LLTokenizer, tokens: int) -> None:
        """Prepare the vocabulary.

        Args:
            tokenizer: of the model.
            tokens: number of the model's ids: at least the tokenizer's, with padding after them.
        """
        self._tokenizer = tokenizer
        self.tokens = tokens
        self.words = -(-tokens // 32)
        """Number of words in a mask."""

    @cached_property
    def numbers(self) -> NumberTokens:
        """Return the tokens of numbers; takes a tenth of a second for 131,072 tokens, once."""
        return NumberTokens(self._tokenizer, self.words)

    @classmethod
    def load(
        cls, tokenizer: bytes, tokens: int | None = None, end_token_ids: Sequence[int] = ()
    ) -> "Vocabulary":
        """Read the vocabulary from tokenizer.json; takes a second for 131,072 tokens.

        Args:
            tokenizer: the file's bytes.
            tokens: number of the model's ids; None: as many as the tokenizer's.
            end_token_ids: ids that end an output; empty: the tokenizer's, which is enough to check
                grammars.

        Raises:
            ValueError: the tokenizer does not support grammars; the text gives the reason.
        """
        try:
            ends = list(end_token_ids) or None
            made = LLTokenizer(tokenizer.decode(), n_vocab=tokens, eos_token=ends)
        except Exception as error:
            raise ValueError(f"tokenizer.json cannot be used for grammars: {error}") from error
        return cls(made, made.vocab_size)

    @classmethod
    def read(cls, directory: Path, tokens: int, end_token_ids: Sequence[int]) -> "Vocabulary":
        """Read the vocabulary of a checkpoint, as `load` does.

        Raises:
            ValueError: as of `load`, or there is no tokenizer.json, or no token ends an output.
        """
        if not end_token_ids:
            raise ValueError(
                "the checkpoint has no end-of-sequence token, which a complete output needs"
            )
        try:
            data = (directory / "tokenizer.json").read_bytes()
        except OSError as error:
            raise ValueError(f"{directory / 'tokenizer.json'}: {error.strerror}") from error
        return cls.load(data, tokens, end_token_ids)

    def matcher(self, grammar: str) -> LLMatcher:
        """Return a matcher at the beginning of a grammar in llguidance's format.

        Its `is_error` reports an error in the grammar.
        """
        return LLMatcher(self._tokenizer, grammar, log_level=0, limits=PARSER)

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self._tokenizer.tokenize_str(text)
