"""What rules know of a request: features that do not depend on any model. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from baton.auto.code import has_code
from baton.auto.languages import language_of

BYTES_PER_TOKEN = 4
SAMPLE_CHARACTERS = 1024
"""Of the user's messages together: their beginning and their end, half of it each. Bounds the time
that features take."""
_EDGE_CHARACTERS = 200
"""Of the beginning and of the end of a message, where it says what is wanted; texts that it is
about are in between, and may have any word."""
_MESSAGES = 4
"""Last messages of the user whose words are read."""
_WORD = re.compile(r"\w+")
_SPACES = {code: " " for code in range(128) if not _WORD.match(chr(code))}
"""For ASCII, which this splits as `_WORD` does, in a third of the time."""
_MARKS = re.compile(r"[?？؟][?!？؟]*")
_ASCII_MARKS = re.compile(r"\?[?!]*")
_CLOSING = frozenset(" \n\t\r\"'”’)]*")


@dataclass(frozen=True)
class RequestFeatures:
    """A request, as rules see it. What needs its text is found once, when a rule asks for it."""

    said: Sequence[str]
    """What the user wrote: messages, or one prompt."""
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
    def text(self) -> str:
        """The beginning and the end of what the user wrote in all messages together.

        Earlier messages count, too: a conversation that once needed a larger model stays with it,
        where its KV is.
        """
        text = self.said[0] if len(self.said) == 1 else "\n".join(self.said)
        if len(text) <= SAMPLE_CHARACTERS:
            return text
        half = SAMPLE_CHARACTERS // 2
        return f"{text[:half]}\n{text[-half:]}"

    @cached_property
    def words(self) -> list[str]:
        """Words at the beginnings and ends of the user's last messages, in lower case."""
        parts = []
        for one in self.said[-_MESSAGES:]:
            if len(one) <= 2 * _EDGE_CHARACTERS:
                parts.append(one)
            else:
                parts += [one[:_EDGE_CHARACTERS], one[-_EDGE_CHARACTERS:]]
        text = "\n".join(parts).lower()
        return text.translate(_SPACES).split() if text.isascii() else _WORD.findall(text)

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
        text, count = self.text, 0
        marks = _ASCII_MARKS if text.isascii() else _MARKS  # a literal is found faster
        for found in marks.finditer(text):
            at, end = found.span()
            if at and not text[at - 1].isspace():
                count += text[at] != "?" or end == len(text) or text[end] in _CLOSING
        return count


def tokens_of(texts: Sequence[str]) -> int:
    """Estimate the tokens of texts, at four bytes in UTF-8 each; at least 1."""
    size = sum(len(text) if text.isascii() else _bytes_of(text) for text in texts)
    return max(1, size // BYTES_PER_TOKEN)


def _bytes_of(text: str) -> int:
    """Estimate the size of a text in UTF-8 by its beginning."""
    start = text[:SAMPLE_CHARACTERS]
    return len(text) * len(start.encode(errors="replace")) // len(start)
