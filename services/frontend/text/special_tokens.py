"""Only the chat template writes special tokens: clients' text stays text.

A tokenizer turns a special token's text into the token wherever it appears, so `<|im_end|>` within
a message would end the turn, and what follows could impersonate another speaker. Here such texts
are marked before a template is rendered. Afterwards every special token without a mark is the
template's.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import tokenizers

_MARK = "\udfff"
"""A surrogate: valid UTF-8 text has none."""
_ALIAS = "\ufdd0"
"""A noncharacter (unicode.org/faq/private_use.html#nonchar1) around an alias's number."""
_REPLACEMENT = "\ufffd"


class SpecialTokenInTextError(ValueError):
    """A text contains a special token, and the tokenizer has no other token for it."""


class SpecialTokens:
    """The special tokens of a tokenizer, and the encoding of texts in which they are only text.

    Args:
        backend: the tokenizer; must not change afterwards.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.ids = frozenset(token for token, entry in added.items() if entry.special)
        special = {added[token].content: token for token in sorted(self.ids)}
        special.pop("", None)
        self.tags = {
            entry.content: token
            for token, entry in added.items()
            if entry.special or (entry.content[:1] == "<" and entry.content[-1:] == ">")
        }
        """Tokens with a structural meaning, by their text: special ones, and those written as tags,
        such as Qwen's `<tool_call>`. Grammars refer to them by id alone."""
        self.ids_by_text = special
        longest_first = sorted(special, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._first_characters = sorted({text[0] for text in special})
        self._beginnings = {text[:size] for text in special for size in range(1, len(text))}
        self._longest = max(map(len, special), default=0)
        self._always = backend.normalizer is not None and any(
            entry.special and entry.normalized for entry in added.values()
        )
        """Whether the normalizer may turn other texts into a special token."""

    def mark(self, text: str) -> str:
        """Return a text with a mark before each special token, and before what a template could
        complete to one at the text's end. Returns the same object if there is none."""
        starts = {start for start, _ in self._find(text)} | set(self._begun(text))
        if not starts:
            return text
        cuts = [0, *sorted(starts), len(text)]
        return _MARK.join(text[start:end] for start, end in pairwise(cuts))

    def is_marked(self, text: str) -> bool:
        """Return whether a rendered text is for `encode`: it has marks, or needs none."""
        return self._always or _MARK in text

    def unmark(self, text: str) -> str:
        """Return a text without its marks."""
        return text.replace(_MARK, "")

    def encode(self, text: str, *, around: bool = False) -> list[int]:
        """Return the token ids of a rendered text. Marked texts do not become special tokens.

        Args:
            text: the text.
            around: whether to add the special tokens that the tokenizer itself adds.

        Raises:
            SpecialTokenInTextError: a marked token has no other encoding.
        """
        text = text.replace(_ALIAS, _REPLACEMENT)
        pieces, at = [], 0
        for start, end in self._find(text):
            if start >= at and text[start - 1 : start] != _MARK:
                pieces += [text[at:start], _alias(self.ids_by_text[text[start:end]])]
                at = end
        aliased = self.unmark("".join([*pieces, text[at:]]))
        (found,) = self._plain.encode_batch_fast([aliased], add_special_tokens=False)
        ids: list[int] = found.ids
        if not self._unavoidable.isdisjoint(ids):
            raise SpecialTokenInTextError
        real = self._real_ids
        before, after = self._around if around else ([], [])
        return [*before, *(real.get(token, token) for token in ids), *after]

    def encode_prompt(self, text: str, *, around: bool = True) -> list[int]:
        """Return the token ids of a text without special tokens; otherwise as `encode`."""
        return self.encode(self.mark(text), around=around)

    def _find(self, text: str) -> list[tuple[int, int]]:
        """Return where special tokens begin and end, overlapping ones too, in order.

        Proceeds from one first character to the next, and so releases the interpreter's lock: a
        single search by the pattern would hold it for all of a long text.
        """
        found = []
        for character in self._first_characters:
            at = text.find(character)
            while at >= 0:
                match = self._pattern.match(text, at)
                if match is not None:
                    found.append(match.span())
                at = text.find(character, at + 1)
        return sorted(found)

    def _begun(self, text: str) -> Iterator[int]:
        """Yield where special tokens begin that the text's end, or its trailing spaces, cut off."""
        end = len(text.rstrip())
        for start in range(max(0, end - self._longest), end):
            if text[start:end] in self._beginnings:
                yield start

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The same tokenizer with aliases instead of special tokens. Shares the model."""
        backend = self._backend
        plain = tokenizers.Tokenizer(backend.model)
        if backend.normalizer is not None:
            plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            plain.pre_tokenizer = backend.pre_tokenizer
        plain.add_tokens([alias for _, alias in self._aliases()])
        return plain

    @cached_property
    def _real_ids(self) -> dict[int, int]:
        """Real ids by the ids of `_plain`, where they differ."""
        pairs = [(self._plain.token_to_id(one.content), token) for token, one in self._aliases()]
        return {plain: token for plain, token in pairs if plain is not None and plain != token}

    @cached_property
    def _unavoidable(self) -> frozenset[int]:
        """Special tokens that the model itself can produce from text."""
        model = self._backend.model
        unknown = getattr(model, "unk_token", None)
        return frozenset(
            token
            for text, token in self.ids_by_text.items()
            if text != unknown and model.token_to_id(text) is not None
        )

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The token ids that the tokenizer adds before and after a text."""
        inner: list[int] = self._backend.encode("a", add_special_tokens=False).ids
        whole: list[int] = self._backend.encode("a").ids
        for at in range(len(whole) - len(inner) + 1):
            if whole[at : at + len(inner)] == inner:
                return whole[:at], whole[at + len(inner) :]
        return [], []

    def _aliases(self) -> Iterator[tuple[int, tokenizers.AddedToken]]:
        """Yield each added token's id, and its alias in `_plain`."""
        for token, entry in sorted(self._backend.get_added_tokens_decoder().items()):
            if entry.special:
                yield (
                    token,
                    tokenizers.AddedToken(
                        _alias(token),
                        single_word=entry.single_word,
                        lstrip=entry.lstrip,
                        rstrip=entry.rstrip,
                        normalized=False,
                    ),
                )
            else:
                yield token, entry


def _alias(token: int) -> str:
    return f"{_ALIAS}{token}{_ALIAS}"
