"""Text from tokens that arrive one by one, without broken characters.

For any split of a sequence of ids into pieces, the joined texts of the pieces equal the text of the
whole. Special tokens have no text.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_WINDOW = 64
_MAX_BYTES = 4
"""Most bytes of a character in UTF-8."""


class Detokenizer(ABC):
    """The text of one output; holds back incomplete characters."""

    @abstractmethod
    def push(self, token_id: int) -> str:
        """Add a token and return the text that became certain; often empty."""

    @abstractmethod
    def flush(self) -> str:
        """Return the text that is held back, when there are no more tokens."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Number of whole characters held back: the next token begins after them."""


class ByteDetokenizer(Detokenizer):
    """For byte-level vocabularies: each token is a run of bytes, and the text is their UTF-8."""

    def __init__(self, tokens: "TokenBytes") -> None:
        """Use the known bytes of the vocabulary, which all outputs share."""
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole = True
        """Whether the text so far ends with a whole character."""

    def push(self, token_id: int) -> str:
        data, text = self._tokens[token_id]
        if text is not None and self._whole:
            return text
        text = self._decoder.decode(data)
        self._whole = not self._decoder.getstate()[0]
        return text

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)

    @property
    def held(self) -> int:
        return 0


class TokenBytes(dict[int, tuple[bytes, str | None]]):
    """By token: its bytes, and its text if they are whole characters. Filled on use."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """Get a token's bytes from `token_bytes`; empty for special tokens."""
        super().__init__()
        self._token_bytes = token_bytes

    def __missing__(self, token_id: int) -> tuple[bytes, str | None]:
        data = self._token_bytes(token_id)
        known: tuple[bytes, str | None]
        try:
            known = (data, data.decode())
        except UnicodeDecodeError:
            known = (data, None)
        self[token_id] = known
        return known


class WindowDetokenizer(Detokenizer):
    """For every other vocabulary: repeatedly decodes a window of the latest tokens.

    The text of a token can depend on its neighbours (spaces between words, bytes of one character),
    so the new text is the window's text without that of the tokens already emitted.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        has_text: Callable[[int], bool],
        is_byte: Callable[[int], bool],
        before: Sequence[int] = (),
    ) -> None:
        """Set up a window.

        Args:
            decode: returns the text of a few ids as a whole.
            has_text: returns False for special tokens and ids that `decode` leaves out.
            is_byte: returns whether a token is a single byte whose meaning depends on its
                neighbours.
            before: tokens that precede the output, for text that depends on not being the first.
        """
        self._decode = decode
        self._has_text = has_text
        self._is_byte = is_byte
        self._window = [token for token in before if has_text(token)]
        self._given = len(self._window)
        self._given_text = decode(self._window) if self._window else ""

    def push(self, token_id: int) -> str:
        if not self._has_text(token_id):
            return ""
        self._window.append(token_id)
        if self._is_byte(token_id):
            return ""  # later bytes may still change their meaning
        text = self._decode(self._window)
        held = len(self._window) - self._given
        if text.endswith(REPLACEMENT) and held < _MAX_WINDOW:
            return ""  # possibly the first bytes of a character
        return self._give(text)

    def flush(self) -> str:
        return self._give(self._decode(self._window)) if self._window else ""

    @property
    def held(self) -> int:
        for end in range(len(self._window), max(self._given, len(self._window) - _MAX_BYTES), -1):
            # Bytes of an incomplete character turn those before them into replacements as well.
            new = self._decode(self._window[:end])[len(self._given_text) :]
            if REPLACEMENT not in new:
                return len(new)
        return 0

    def _give(self, text: str) -> str:
        new = text[len(self._given_text) :]
        # The last emitted tokens are kept: the next ones depend on them.
        if new:
            del self._window[: self._given]
            self._given_text = self._decode(self._window)
        else:
            self._given_text = text
        self._given = len(self._window)
        return new
