"""Sampling and stopping parameters: the one definition that frontends, workers, engines and the
client share.

A parameter is a field of `SamplingParams` and of the message of that name in `baton.v1`; its limits
stand in its annotation. Conversion, validation, the fields of OpenAI bodies and the keyword options
of the client follow from PARAMETERS, which is made of the fields. To add one, add it to the
message, to the two classes here, and to the samplers of the engines.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Self, TypedDict, get_args, get_origin, get_type_hints

import msgspec

from baton.request.grammar import Grammar
from baton.v1 import common_pb2

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


class InvalidParameterError(ValueError):
    """A parameter is outside of its limits. `field` is its name; the text says limit and value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a value may be. Of a collection, low and high limit each number, or string's length."""

    low: float | None = None
    high: float | None = None
    above: bool = False
    """Whether `low` itself is out."""
    items: tuple[int, int] | None = None
    """The fewest and the most entries of a collection that is given."""
    token_ids: bool = False
    """Whether the entries are ids within the model's vocabulary."""
    feature: str = ""
    """What an engine must support where the value is not the default; empty: every engine does."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn and where an output ends; meanings as of `baton.v1.SamplingParams`."""

    temperature: Annotated[float, Limits(0, 2)] = 1.0
    top_p: Annotated[float, Limits(0, 1)] = 1.0
    """0: the most likely token, or one of those that are."""
    top_k: Annotated[int, Limits(0, _INT32)] = 0
    min_p: Annotated[float, Limits(0, 1, feature="min_p")] = 0.0
    seed: Annotated[int | None, Limits(-_INT64 - 1, _INT64)] = None
    """None: the frontend draws one; an engine takes it as 0."""
    presence_penalty: Annotated[float, Limits(-2, 2, feature="penalties")] = 0.0
    frequency_penalty: Annotated[float, Limits(-2, 2, feature="penalties")] = 0.0
    repetition_penalty: Annotated[float, Limits(0, 2, above=True, feature="penalties")] = 1.0
    logit_bias: Annotated[
        dict[int, float], Limits(-100, 100, items=(0, 1024), token_ids=True, feature="logit_bias")
    ] = {}
    logprobs: Annotated[int | None, Limits(0, 20, feature="logprobs")] = None
    """Alternatives to report per token; None reports no log probabilities."""
    max_tokens: Annotated[int | None, Limits(0)] = None
    """None: up to the context's end. 0, which engines are never given: the prompt alone."""
    min_tokens: Annotated[int, Limits(0)] = 0
    stop_token_ids: Annotated[tuple[int, ...], Limits(items=(0, 256), token_ids=True)] = ()
    ignore_eos: bool = False
    stop: Annotated[tuple[str, ...], Limits(1, 256, items=(0, 4))] = ()
    """The frontend's alone: workers know no text."""
    allowed_token_ids: Annotated[
        tuple[int, ...] | None, Limits(items=(1, 1024), token_ids=True)
    ] = None
    """The only tokens that are sampled; None: all."""
    grammar: Annotated[Grammar | None, Limits(feature="grammar")] = None
    """What the output's text must look like; None: anything."""
    bad_words: Annotated[tuple[str, ...], Limits(1, 256, items=(0, 128), feature="bad_words")] = ()
    """The frontend's alone, which makes `bad_word_ids` of them."""
    include_stop_str_in_output: bool = False
    """The frontend's alone."""
    skip_special_tokens: bool = True
    """The frontend's alone."""
    prompt_logprobs: Annotated[int | None, Limits(0, 20, feature="prompt_logprobs")] = None
    """Alternatives to report per prompt token; None reports nothing. Engines are told with the
    request, as only one of two workers computes the prompt."""
    bad_word_ids: Annotated[
        tuple[tuple[int, ...], ...],
        Limits(1, 64, items=(0, 512), token_ids=True, feature="bad_words"),
    ] = ()
    """Runs of tokens that the output does not have."""

    @classmethod
    def from_proto(cls, params: common_pb2.SamplingParams) -> Self:
        """Make the struct of a message; what is not set has the default. Nothing is checked."""
        return cls.from_options({field.name: value for field, value in params.ListFields()})

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Make the struct of values by name; None and other names are as if they were not there.

        A string for `stop` is one stop string. Nothing is checked.
        """
        given: dict[str, Any] = {}
        for name, make in _MAKERS.items():
            value = options.get(name)
            if value is not None:
                given[name] = value if make is None else make(value)
        return cls(**given)

    def to_proto(self, given: Collection[str] = ()) -> common_pb2.SamplingParams:
        """Make the message; what has its default is not set.

        Args:
            given: names of parameters to set though they have their defaults, as the model may have
                others.

        Raises:
            InvalidParameterError: a list is empty, which the message cannot tell from not given.
            ValueError: a number does not fit the message.
            TypeError: a value has a type that the message does not take.
        """
        fields: dict[str, Any] = {}
        for each in PARAMETERS:
            value = getattr(self, each.name)
            if value != each.default:
                if each.limits.items is not None and not value:
                    raise InvalidParameterError(each.name, _count(each.limits, 0))
                if isinstance(value, Grammar):
                    value = value.to_proto()
                elif each.name == "bad_word_ids":
                    value = [common_pb2.TokenRun(ids=run) for run in value]
                fields[each.name] = value
            elif each.name in given and each.limits.items is None:
                fields[each.name] = value
        return common_pb2.SamplingParams(**fields)


class SamplingOptions(TypedDict, total=False):
    """The same by keyword, for static types; what is left out has the server's default."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Mapping[int, float]
    logprobs: int
    """Alternatives to report with each token's log probability, 0 to 20."""
    max_tokens: int
    """At most this many output tokens. Default: up to the context's end."""
    min_tokens: int
    """No end of sequence and no stop token before this many."""
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    stop: str | Sequence[str]
    """Strings that end the output, at most 4."""
    allowed_token_ids: Sequence[int]
    """The only tokens that are sampled, 1 to 1024."""
    grammar: Grammar
    """What the output's text must look like."""
    bad_words: str | Sequence[str]
    """Words that the output does not have, at most 128."""
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    prompt_logprobs: int
    """Alternatives to report with each prompt token's log probability, 0 to 20."""
    bad_word_ids: Sequence[Sequence[int]]
    """Runs of tokens that the output does not have, at most 512."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of SamplingParams."""

    name: str
    type: Any
    default: Any
    limits: Limits


def check(params: SamplingParams, names: Mapping[str, str] | None = None) -> None:
    """Check everything that does not depend on the model.

    Args:
        params: what a client or a frontend sent.
        names: what its sender calls parameters that have another name there, for the error.

    Raises:
        InvalidParameterError: the first parameter that is wrong.
    """
    names = names or {}
    for each in PARAMETERS:
        value = getattr(params, each.name)
        if value == each.default:
            continue
        name, limits = names.get(each.name, each.name), each.limits
        if isinstance(value, Grammar):
            _check_grammar(name, value)
            continue
        if limits.items is not None:
            if not limits.items[0] <= len(value) <= limits.items[1]:
                raise InvalidParameterError(name, _count(limits, len(value)))
            value = value.values() if isinstance(value, dict) else value
        for one in value if limits.items is not None else (value,):
            _check_one(name, limits, one)
    if params.grammar is not None and params.allowed_token_ids:
        raise InvalidParameterError(
            "allowed_token_ids",
            f"is not supported together with {names.get('grammar', 'grammar')}; leave one out",
        )
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        most = names.get("max_tokens", "max_tokens")
        raise InvalidParameterError(
            "min_tokens",
            f"{params.min_tokens} is out of range: at most {most}, {params.max_tokens}",
        )


def check_vocabulary(params: SamplingParams, vocab_tokens: int) -> None:
    """Check that token ids are below `vocab_tokens`, and not negative.

    Raises:
        InvalidParameterError: the first parameter that has one that is not.
    """
    for each in _TOKEN_IDS:
        value = getattr(params, each.name)
        if each.name == "bad_word_ids":
            value = list(chain.from_iterable(value))
        check_token_ids(each.name, value, vocab_tokens)


def check_token_ids(field: str, ids: Mapping[int, Any] | Sequence[int], vocab_tokens: int) -> None:
    """Check the ids of one field, as `check_vocabulary` does."""
    if ids and (min(ids) < 0 or max(ids) >= vocab_tokens):  # prompts are long: no loop in Python
        wrong = next(token for token in ids if not 0 <= token < vocab_tokens)
        raise InvalidParameterError(
            field,
            f"the token id {wrong} is outside of the vocabulary, 0 to {vocab_tokens - 1}",
        )


def needed_features(params: SamplingParams) -> Iterator[tuple[str, str]]:
    """Yield the parameters that not every engine supports, each with the feature it needs."""
    for each in PARAMETERS:
        if each.limits.feature and getattr(params, each.name) != each.default:
            yield each.name, each.limits.feature


def is_plainly_greedy(params: SamplingParams, n: int) -> bool:
    """Return whether each token is the most likely one by the model's own logits, and n is 1.

    Such an output is the same wherever it goes on: no draw and no count of earlier tokens is in it.
    """
    return (
        n == 1
        and params.temperature == 0
        and all(
            getattr(params, each.name) == each.default
            for each in PARAMETERS
            if each.name not in _NO_MATTER_TO_GREEDY
        )
    )


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
    allowed = f"at least {limits.low}" if limits.high is None else f"{limits.low} to {limits.high}"
    if limits.above:
        allowed = f"above {limits.low} and up to {limits.high}"
    raise InvalidParameterError(name, f"{shown} is out of range: {allowed}")


def _count(limits: Limits, count: int) -> str:
    fewest, most = limits.items or (0, 0)
    return f"{count} entries are out of range: {fewest} to {most}"


def _parameters() -> Iterator[Parameter]:
    plain = get_type_hints(SamplingParams)
    limited = get_type_hints(SamplingParams, include_extras=True)
    for field in msgspec.structs.fields(SamplingParams):
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        limits = next(iter(getattr(limited[field.name], "__metadata__", ())), Limits())
        yield Parameter(field.name, plain[field.name], default, limits)


def _maker(parameter: Parameter) -> Callable[[Any], Any] | None:
    """Return what makes a parameter's value of any collection; None where it is no collection."""
    if parameter.name in ("stop", "bad_words"):
        return _strings
    if parameter.name == "grammar":
        return _grammar
    if parameter.name == "bad_word_ids":
        return _runs
    kind = parameter.type
    origin = get_origin(get_args(kind)[0] if isinstance(kind, UnionType) else kind)
    return origin if origin in (dict, tuple) else None


def _strings(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _grammar(value: Grammar | common_pb2.Grammar) -> Grammar:
    return value if isinstance(value, Grammar) else Grammar.from_proto(value)


def _runs(value: Iterable[Sequence[int] | common_pb2.TokenRun]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(run.ids if isinstance(run, common_pb2.TokenRun) else run) for run in value)


PARAMETERS = tuple(_parameters())
"""All parameters, in the order in which they are checked."""
_NO_MATTER_TO_GREEDY = frozenset(
    {
        "temperature",  # which makes it greedy
        *("top_p", "top_k", "min_p", "seed"),  # of draws
        *("max_tokens", "stop_token_ids", "ignore_eos", "stop"),  # end it
        *("include_stop_str_in_output", "skip_special_tokens"),  # write it
        *("logprobs", "prompt_logprobs"),  # report it
    }
)
_TOKEN_IDS = tuple(each for each in PARAMETERS if each.limits.token_ids)
_MAKERS: dict[str, Any] = {each.name: _maker(each) for each in PARAMETERS}
