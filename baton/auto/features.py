"""What rules know of a request: features that do not depend on any model. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from baton.auto.code import has_code
from baton.auto.languages import language_of

BYTES_PER_TOKEN = 4
SAMPLE_CHARACTERS = 2048
"""Of the user's messages together: their beginning and their end, half of it each. Bounds the time
that features take."""
_WORD = re.compile(r"\w+")
_QUESTION = re.compile(r"(?<=[^\s?!？؟])!*(?:\?[?!]*(?=[\s\"'”’)\]*]|$)|[？؟]+)")


@dataclass(frozen=True)
class RequestFeatures:
    """A request, as rules see it. What needs its text is found once, when a rule asks for it."""

    text: str
    """The beginning and the end of what the user wrote, see `sample_of`."""
    prompt_tokens: int
    """Estimated, see `tokens_of`."""
    output_tokens: int = 0
    """Its `max_tokens`; 0: it has none."""
    tools: bool = False
    schema: bool = False
    pictures: bool = False
    tier: str = ""
    priority_class: str = ""
    label: str = ""
    """Of the classifier; empty: there is none, or it was late."""

    @cached_property
    def words(self) -> list[str]:
        """The words of the text, in lower case."""
        return _WORD.findall(self.text.lower())

    @cached_property
    def word_set(self) -> frozenset[str]:
        """Each word once."""
        return frozenset(self.words)

    @cached_property
    def spaced_words(self) -> str:
        """The words with a space before and after each, to find phrases."""
        return f" {' '.join(self.words)} "

    @cached_property
    def code(self) -> bool:
        """Whether the text has code."""
        return has_code(self.text)

    @cached_property
    def language(self) -> str:
        """The language of the text, see `language_of`."""
        return language_of(self.text, self.words)

    @cached_property
    def questions(self) -> int:
        """Question marks at the ends of words; several in a row are one."""
        return len(_QUESTION.findall(self.text))


def sample_of(texts: Sequence[str]) -> str:
    """Return the beginning and the end of what the user wrote in all messages together.

    Earlier messages count, too: a conversation that once needed a larger model stays with it, where
    its KV is.
    """
    text = texts[0] if len(texts) == 1 else "\n".join(texts)
    if len(text) <= SAMPLE_CHARACTERS:
        return text
    half = SAMPLE_CHARACTERS // 2
    return f"{text[:half]}\n{text[-half:]}"


def tokens_of(texts: Sequence[str]) -> int:
    """Estimate the tokens of texts, at four bytes in UTF-8 each; at least 1."""
    size = sum(len(text) if text.isascii() else _bytes_of(text) for text in texts)
    return max(1, size // BYTES_PER_TOKEN)


def _bytes_of(text: str) -> int:
    """Estimate the size of a text in UTF-8 by its beginning."""
    start = text[:SAMPLE_CHARACTERS]
    return len(text) * len(start.encode(errors="replace")) // len(start)
