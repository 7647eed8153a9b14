"""Parameters that forbid tokens: together they must leave at least one token to sample."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from baton.errors import BatonError, invalid_field
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams
from services.frontend.models.model import ServedModel
from services.frontend.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from baton.structured.grammars import Grammars

_GOES_ON = "x"
"""Appended to a text that is not whole: its last word may continue."""
_META = re.compile(r"[\\.+*?()|\[\]{}^$&~]")
_BAN = -100.0
"""The lowest bias, which OpenAI's reference calls a ban."""


def check_bans(sampling: SamplingParams, model: ServedModel, names: Mapping[str, str]) -> None:
    """Check that the parameters that allow or forbid tokens leave at least one first token.

    Raises:
        BatonError: INVALID_FIELD: none is left; the message names all parameters involved.
    """
    allowed = sampling.allowed_token_ids
    if allowed is None and not (
        sampling.bad_words or sampling.bad_word_ids or sampling.logit_bias or sampling.min_tokens
    ):
        return
    bans = list(_bans(sampling, model))
    if allowed is None and sum(len(banned) for _, banned in bans) < model.vocab_tokens:
        return
    left = set(range(model.vocab_tokens) if allowed is None else allowed)
    fields = [] if allowed is None else ["allowed_token_ids"]
    for field, banned in bans:
        if not left.isdisjoint(banned):
            fields.append(names.get(field, field))
            left -= banned
        if not left:
            raise _nothing_left(fields, "no token to sample")


def _bans(sampling: SamplingParams, model: ServedModel) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield the parameters that forbid tokens at the start of an output, with these tokens."""
    for field, runs in (
        ("bad_word_ids", sampling.bad_word_ids),
        ("bad_words", model.tokenizer.word_runs(sampling.bad_words)),
    ):
        yield field, frozenset(run[0] for run in runs if len(run) == 1)
    bias = sampling.logit_bias.items()
    yield "logit_bias", frozenset(token for token, value in bias if value <= _BAN)
    if sampling.min_tokens:
        ends = frozenset() if sampling.ignore_eos else model.eos_token_ids
        yield "min_tokens", ends.union(sampling.stop_token_ids)


async def check_bans_of(
    grammar: Grammar,
    field: str,
    sampling: SamplingParams,
    tokenizer: Tokenizer,
    names: Mapping[str, str],
) -> None:
    """Check that a grammar has an output without the bad words of a request.

    This detects that each text of a choice, or the text that every output starts with, contains a
    bad word.

    Args:
        grammar: the compiled grammar.
        field: the client's name for it.
        sampling: the parameters of the request.
        tokenizer: the tokenizer of the model.
        names: the client's names for parameters.

    Raises:
        BatonError: INVALID_FIELD: no such output exists; the message names both parameters.
    """
    if not (sampling.bad_words or sampling.bad_word_ids) or tokenizer.grammars is None:
        return
    bans = _Bans(sampling, tokenizer)
    why = await asyncio.to_thread(bans.of, grammar, tokenizer.grammars)
    if why:
        raise _nothing_left([field, names.get(why, why)], "no possible output")


class _Bans:
    """The bad words of a request, as texts and as tokens."""

    def __init__(self, sampling: SamplingParams, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._patterns = [_as_word(word) for word in sampling.bad_words]
        self._of_words = tokenizer.word_runs(sampling.bad_words)
        self._of_ids = sampling.bad_word_ids

    def of(self, grammar: Grammar, grammars: "Grammars") -> str:
        """Return the parameter that forbids every output of a grammar; empty: none does."""
        if options := _options(grammar):
            found = [self._within(option) for option in options]
            return found[0] if all(found) else ""
        from baton.structured.beginning import can_begin_without  # imports numpy, as grammars do

        compiled = grammars.get(grammar)
        matcher = compiled.begin()
        begins = matcher.compute_ff_bytes().decode(errors="ignore")
        if any(pattern.search(begins + _GOES_ON) for pattern in self._patterns):
            return "bad_words"
        for name, runs in (("bad_words", self._of_words), ("bad_word_ids", self._of_ids)):
            banned = {run[0] for run in runs if len(run) == 1}
            if banned and not can_begin_without(compiled.vocabulary, matcher, banned):
                return name
        return ""

    def _within(self, text: str) -> str:
        """Return the parameter that forbids a text; empty: none does."""
        if any(pattern.search(text) for pattern in self._patterns):
            return "bad_words"
        ids = self._tokenizer.encode(text, special=False, around=False) if self._of_ids else []
        for run in self._of_ids:
            if any(tuple(ids[at : at + len(run)]) == run for at in range(len(ids))):
                return "bad_word_ids"
        return ""


def _options(grammar: Grammar) -> list[str]:
    """Return the texts of a grammar that allows only these; none: they are not known."""
    if grammar.kind == "choice":
        return grammar.options()
    if grammar.kind == "regex" and not _META.search(grammar.text):
        return [grammar.text]
    if grammar.kind != "json_schema":
        return []
    match json.loads(grammar.text):
        case {"const": value}:
            return [json.dumps(value, ensure_ascii=False)]
        case {"enum": list(values)}:
            return [json.dumps(value, ensure_ascii=False) for value in values]
    return []


def _as_word(word: str) -> re.Pattern[str]:
    """Return a pattern that finds a word in a text, but not within another word."""
    bare = word.strip() or word
    before = r"(?<!\w)" if re.match(r"\w", bare[0]) else ""
    behind = r"(?!\w)" if re.match(r"\w", bare[-1]) else ""
    return re.compile(before + re.escape(bare) + behind)


def _nothing_left(fields: list[str], what: str) -> BatonError:
    together = " and ".join(fields)
    return invalid_field(fields[0], f"{together} leave {what}; omit one of them")
