"""Check parameters, and list the features that a request needs."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from baton.request.grammar import Grammar
from baton.sampling.parameter import (
    Effect,
    Engines,
    InvalidParameterError,
    Limits,
    Parameter,
    count_text,
)
from baton.sampling.params import PARAMETERS, SamplingParams

_ALL = operator.attrgetter(*(each.name for each in PARAMETERS))
_DEFAULTS = tuple((each, each.default) for each in PARAMETERS)


def changed(params: SamplingParams) -> list[tuple[Parameter, Any]]:
    """Return the parameters with another value than their default, and their values."""
    return [
        (each, value)
        for (each, default), value in zip(_DEFAULTS, _ALL(params), strict=True)
        if value != default
    ]


def check(params: SamplingParams, names: Mapping[str, str] | None = None) -> None:
    """Check everything that does not depend on the model.

    Args:
        params: parameters from a client or a frontend.
        names: the sender's own names of parameters, for the error.

    Raises:
        InvalidParameterError: the first parameter that is wrong.
    """
    names = names or {}
    for each, value in changed(params):
        name, limits = names.get(each.name, each.name), each.limits
        if isinstance(value, Grammar):
            _check_grammar(name, value)
            continue
        if limits.items is not None:
            if not limits.items[0] <= len(value) <= limits.items[1]:
                raise InvalidParameterError(name, count_text(limits, len(value)))
            value = value.values() if isinstance(value, dict) else value
        for one in value if limits.items is not None else (value,):
            _check_one(name, limits, one)
    if params.grammar is not None and params.allowed_token_ids:
        raise InvalidParameterError(
            "allowed_token_ids",
            f"is not supported together with {names.get('grammar', 'grammar')}; omit one of them",
        )
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        most = names.get("max_tokens", "max_tokens")
        raise InvalidParameterError(
            "min_tokens",
            f"{params.min_tokens} is out of range: at most {most}, {params.max_tokens}",
        )


def check_vocabulary(params: SamplingParams, vocab_tokens: int) -> None:
    """Check that token ids are neither negative nor `vocab_tokens` or more.

    Raises:
        InvalidParameterError: the first parameter with an invalid id.
    """
    for each, value in changed(params):
        if not each.limits.token_ids:
            continue
        if each.name == "bad_word_ids":
            value = list(chain.from_iterable(value))
        check_token_ids(each.name, value, vocab_tokens)


def check_token_ids(field: str, ids: Mapping[int, Any] | Sequence[int], vocab_tokens: int) -> None:
    """Check the ids of one field, as `check_vocabulary` does."""
    if ids and (min(ids) < 0 or max(ids) >= vocab_tokens):  # prompts are long: no loop in Python
        wrong = next(token for token in ids if not 0 <= token < vocab_tokens)
        raise InvalidParameterError(
            field,
            f"token id {wrong} is outside the vocabulary, 0 to {vocab_tokens - 1}",
        )


def needed_features(params: SamplingParams) -> Iterator[tuple[str, str]]:
    """Yield the parameters that not every engine supports, each with the feature it needs."""
    for each, _ in changed(params):
        feature = each.traits.feature
        if feature is not None:
            yield each.name, feature.name


def features_of(engines: Engines) -> tuple[str, ...]:
    """Return the features that these engines support with every checkpoint."""
    features = (each.traits.feature for each in PARAMETERS)
    return tuple(dict.fromkeys(one.name for one in features if one and engines in one.engines))


def is_plainly_greedy(params: SamplingParams, n: int) -> bool:
    """Return whether each token is the most likely one by the model's own logits, and n is 1.

    Such an output continues identically anywhere: it depends on no random number and no count of
    earlier tokens.
    """
    if n != 1 or params.temperature:
        return False
    return not [each for each, _ in changed(params) if each.traits.effect is Effect.LOGITS]


def _check_grammar(name: str, grammar: Grammar) -> None:
    try:
        grammar.check()
    except ValueError as error:
        raise InvalidParameterError(name, str(error)) from None


def _check_one(name: str, limits: Limits, value: Any) -> None:
    number = len(value) if isinstance(value, str | tuple) else value
    low = -math.inf if limits.low is None else limits.low
    high = math.inf if limits.high is None else limits.high
    if low <= number <= high and not (limits.above and number == low):
        return
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        shown = f"a string of {number} characters"
    elif isinstance(value, tuple):
        shown = f"a run of {number} tokens"
    raise InvalidParameterError(name, f"{shown} is out of range: {limits.describe()}")
