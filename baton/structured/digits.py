"""Bound the digits of numbers: after the maximum, a token that begins with a digit is not allowed.

JSON Schema cannot express this, so it is not part of the grammar: such tokens are removed from its
masks, unless no other token is allowed. The values that a schema requires therefore remain
reachable, and the output remains JSON. An exponent ends sooner, as doubles have no longer ones.
Strings, and text around JSON, are distinguished from numbers by the letters and quotation marks
that are allowed there.
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from baton.structured.json_schema.schema import walk
from baton.structured.pauses import Pauses

Words = NDArray[np.uint32]
EXPONENT_DIGITS = 3
_DOUBLE_DIGITS = 17
"""Digits that distinguish any double from its neighbours, after leading zeros."""
_BETWEEN_DIGITS = 22
"""Digits after the point of a double that is written without an exponent, as in JavaScript."""
_RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LIMITS = (*_RANGE, "multipleOf")
_NUMBER_END = re.compile(rb"([eE][+-]?)?([0-9]+)\Z")


class NumberTokens:
    """Tokens of a vocabulary that matter to numbers. Any thread may use it."""

    def __init__(self, tokenizer: LLTokenizer, words: int) -> None:
        self._tokenizer = tokenizer
        self._words = words
        pauses = Pauses()
        begins, ends, text = [], [], []
        for token in range(tokenizer.vocab_size):
            pauses.take()
            piece = tokenizer.decode_bytes([token])
            if piece[:1].isdigit():
                begins.append(token)
            elif (piece[:1].isalpha() and piece[:1] not in b"eE") or piece[:1] == b'"':
                text.append(token)
            if piece[-1:].isdigit():
                ends.append(token)
        self._ends = frozenset(ends)
        self._others = ~self._mask(begins)
        self._text = self._mask(text)

    def bound(self, mask: Words, tokens: Sequence[int], begin: int, digits: int) -> None:
        """Remove tokens that continue a number from a mask, if the number has enough digits.

        Args:
            mask: uint32 [words], in which at least one token always remains.
            tokens: prompt and output.
            begin: start of the output in the tokens.
            digits: maximum in a row; one token more where tokens have several digits.
        """
        if len(tokens) <= begin or tokens[-1] not in self._ends:
            return
        tail = list(tokens[max(begin, len(tokens) - digits - 2) :])
        found = _NUMBER_END.search(self._tokenizer.decode_bytes(tail))
        if found is None or len(found[2]) < (min(digits, EXPONENT_DIGITS) if found[1] else digits):
            return
        left = mask & self._others
        if left.any() and not (mask & self._text).any():
            mask[:] = left

    def _mask(self, tokens: Iterable[int]) -> Words:
        mask = np.zeros(self._words, np.uint32)
        at = np.fromiter(tokens, np.int64)
        np.bitwise_or.at(mask, at >> 5, np.uint32(1) << (at & 31).astype(np.uint32))
        return mask


def digits_needed(schema: Any, pauses: Pauses) -> int:
    """Return the number of consecutive digits that a schema's constants and ranges need."""
    most = 0
    for _, each in walk(schema):
        pauses.take()
        values = [each[name] for name in (*_LIMITS, "const") if name in each]
        if isinstance(listed := each.get("enum"), list):
            values += listed
        most = max(most, *map(_digits, values), 0)
        if _has_fractions(each):
            most = max(most, _BETWEEN_DIGITS)
    return most


def _has_fractions(schema: Mapping[str, Any]) -> bool:
    """Return whether a subschema's limits admit numbers that are not whole."""
    types = schema.get("type", "number")
    return "number" in (types if isinstance(types, list) else [types]) and any(
        name in schema for name in _RANGE
    )


def _digits(value: Any) -> int:
    if isinstance(value, list):
        return max(map(_digits, value), default=0)
    if isinstance(value, Mapping):
        return max(map(_digits, value.values()), default=0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return 0
    if isinstance(value, int):
        return int(value.bit_length() * math.log10(2)) + 1
    if not math.isfinite(value):
        return sys.float_info.max_10_exp + 1
    exponent = math.floor(math.log10(abs(value)))
    return exponent + 1 if value.is_integer() else max(exponent + 1, _DOUBLE_DIGITS - exponent)
