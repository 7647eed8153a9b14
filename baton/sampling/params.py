"""The parameters, as a struct, as keyword options and as a table.

A parameter is a field of `SamplingParams` and of the message of that name in `baton.v1`; its
annotation is its row of the table. PARAMETERS, built from the fields, defines conversion,
validation, the recommendations that are read from generation_config.json, engines' features, the
arguments for vLLM's sampler, and the fields of OpenAI bodies with their text in docs/api.md. To add
a number, add it to the message, to the two classes here (the second is for static types), and to
`baton.engine.sampling`, which computes with it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Self, TypedDict, get_args, get_origin, get_type_hints

import msgspec

from baton.request.grammar import Grammar
from baton.sampling.parameter import (
    Effect,
    Engines,
    Feature,
    InvalidParameterError,
    Limits,
    Parameter,
    Traits,
    count_text,
)
from baton.v1 import common_pb2

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


_DRAW, _END, _TEXT, _REPORT = Effect.DRAW, Effect.END, Effect.TEXT, Effect.REPORT
_TORCH, _VLLM, _SPECULATING = Engines.TORCH, Engines.VLLM, Engines.VLLM_SPECULATING
_PENALTIES = Feature("penalties", _TORCH | _VLLM | _SPECULATING)
_BAD_WORDS = Feature("bad_words", _TORCH | _VLLM)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are sampled and where an output ends; fields as of `baton.v1.SamplingParams`."""

    temperature: Annotated[float, Limits(0, 2), Traits(_DRAW, checkpoint="temperature")] = 1.0
    """0 selects greedy sampling."""
    top_p: Annotated[
        float,
        Limits(0, 1),
        Traits(_DRAW, checkpoint="top_p", note="0 to 1; 0 keeps the most likely token"),
    ] = 1.0
    """0: the most likely token, or one of several equally likely ones."""
    top_k: Annotated[
        int,
        Limits(0, _INT32),
        Traits(_DRAW, checkpoint="top_k", vllm="top_k", vllm_values={-1: 0}, note="0 or -1: all"),
    ] = 0
    min_p: Annotated[
        float,
        Limits(0, 1),
        Traits(_DRAW, Feature("min_p", _TORCH | _VLLM), checkpoint="min_p", vllm="min_p"),
    ] = 0.0
    seed: Annotated[
        int | None,
        Limits(-_INT64 - 1, _INT64),
        Traits(_DRAW, note="the same seed samples the same tokens"),
    ] = None
    """None: the frontend chooses one at random; an engine treats it as 0."""
    presence_penalty: Annotated[
        float, Limits(-2, 2), Traits(feature=_PENALTIES, vllm="presence_penalty")
    ] = 0.0
    frequency_penalty: Annotated[
        float, Limits(-2, 2), Traits(feature=_PENALTIES, vllm="frequency_penalty")
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Limits(0, 2, above=True),
        Traits(feature=_PENALTIES, checkpoint="repetition_penalty", vllm="repetition_penalty"),
    ] = 1.0
    logit_bias: Annotated[
        dict[int, float],
        Limits(-100, 100, items=(0, 1024), token_ids=True),
        Traits(feature=Feature("logit_bias", _TORCH | _VLLM)),
    ] = {}
    logprobs: Annotated[
        int | None,
        Limits(0, 20),
        Traits(_REPORT, Feature("logprobs", _TORCH | _VLLM | _SPECULATING), vllm="logprobs"),
    ] = None
    """Alternatives to report per token; None reports no log probabilities."""
    max_tokens: Annotated[int | None, Limits(0), Traits(_END, checkpoint="max_new_tokens")] = None
    """None: up to the end of the context. 0, which engines never receive: only the prompt."""
    min_tokens: Annotated[int, Limits(0), Traits(note="minimum output tokens")] = 0
    stop_token_ids: Annotated[
        tuple[int, ...], Limits(items=(0, 256), token_ids=True), Traits(_END)
    ] = ()
    ignore_eos: Annotated[
        bool, Traits(_END, note="continue after the model's end-of-sequence token")
    ] = False
    stop: Annotated[tuple[str, ...], Limits(1, 256, items=(0, 4)), Traits(_END)] = ()
    """Used by the frontend alone: workers have no text."""
    allowed_token_ids: Annotated[
        tuple[int, ...] | None, Limits(items=(1, 1024), token_ids=True)
    ] = None
    """The only tokens that may be sampled; None: all."""
    grammar: Annotated[Grammar | None, Traits(feature=Feature("grammar", Engines.NONE))] = None
    """Grammar that the output's text must match; None: no constraint."""
    bad_words: Annotated[
        tuple[str, ...], Limits(1, 256, items=(0, 128)), Traits(feature=_BAD_WORDS)
    ] = ()
    """Used by the frontend alone, which converts them to `bad_word_ids`."""
    include_stop_str_in_output: Annotated[
        bool, Traits(_TEXT, note="applies to stop tokens too")
    ] = False
    """Used by the frontend alone."""
    skip_special_tokens: Annotated[
        bool, Traits(_TEXT, note="false: the text includes special tokens")
    ] = True
    """Used by the frontend alone."""
    prompt_logprobs: Annotated[
        int | None, Limits(0, 20), Traits(_REPORT, Feature("prompt_logprobs", _TORCH))
    ] = None
    """Alternatives to report per prompt token; None reports nothing. Engines receive it with the
    request, as only one of two workers computes the prompt. vLLM's support depends on its
    configuration.
    """
    bad_word_ids: Annotated[
        tuple[tuple[int, ...], ...],
        Limits(1, 64, items=(0, 512), token_ids=True),
        Traits(feature=_BAD_WORDS, note="`bad_words` as sequences of token ids; Baton only"),
    ] = ()
    """Token sequences that the output must not contain."""

    @classmethod
    def from_proto(cls, params: common_pb2.SamplingParams) -> Self:
        """Return the struct of a message; unset fields have their defaults. Nothing is checked."""
        return cls.from_options({field.name: value for field, value in params.ListFields()})

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the struct of values by name, ignoring None and unknown names.

        A string for `stop` is one stop string. Nothing is checked.
        """
        given: dict[str, Any] = {}
        for name, make in _MAKERS.items():
            value = options.get(name)
            if value is not None:
                given[name] = value if make is None else make(value)
        return cls(**given)

    @classmethod
    def from_vllm_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the struct of values as vLLM takes them: as `from_options`, with `vllm_values`."""
        meant = {
            name: values[options[name]]
            for name, values in _VLLM_VALUES.items()
            if options.get(name) in values
        }
        return cls.from_options({**options, **meant})

    def to_proto(self, given: Collection[str] = ()) -> common_pb2.SamplingParams:
        """Return the message; parameters with their default are not set.

        Args:
            given: names of parameters to set even with their defaults, as the model may have other
                defaults.

        Raises:
            InvalidParameterError: a list is empty, which the message cannot distinguish from unset.
            ValueError: a number does not fit the message.
            TypeError: a value has a type that the message does not accept.
        """
        fields: dict[str, Any] = {}
        for each in PARAMETERS:
            value = getattr(self, each.name)
            if value != each.default:
                if each.limits.items is not None and not value:
                    raise InvalidParameterError(each.name, count_text(each.limits, 0))
                if isinstance(value, Grammar):
                    value = value.to_proto()
                elif each.name == "bad_word_ids":
                    value = [common_pb2.TokenRun(ids=run) for run in value]
                fields[each.name] = value
            elif each.name in given and each.limits.items is None:
                fields[each.name] = value
        return common_pb2.SamplingParams(**fields)


class SamplingOptions(TypedDict, total=False):
    """The same parameters as keywords, for static types; omitted ones have the server's default."""

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
    """No end of sequence and no stop token before this many tokens."""
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    stop: str | Sequence[str]
    """Strings that end the output, at most 4."""
    allowed_token_ids: Sequence[int]
    """The only tokens that may be sampled, 1 to 1024."""
    grammar: Grammar
    """Grammar that the output's text must match."""
    bad_words: str | Sequence[str]
    """Words that the output must not contain, at most 128."""
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    prompt_logprobs: int
    """Alternatives to report with each prompt token's log probability, 0 to 20."""
    bad_word_ids: Sequence[Sequence[int]]
    """Token sequences that the output must not contain, at most 512."""


def _parameters() -> Iterator[Parameter]:
    plain = get_type_hints(SamplingParams)
    limited = get_type_hints(SamplingParams, include_extras=True)
    for field in msgspec.structs.fields(SamplingParams):
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        said = {type(one): one for one in getattr(limited[field.name], "__metadata__", ())}
        limits, traits = said.get(Limits, Limits()), said.get(Traits, Traits())
        yield Parameter(field.name, plain[field.name], default, limits, traits)


def _maker(parameter: Parameter) -> Callable[[Any], Any] | None:
    """Return the constructor of a parameter's collection type; None if it is not a collection."""
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
_VLLM_VALUES = {
    each.name: each.traits.vllm_values for each in PARAMETERS if each.traits.vllm_values
}
_MAKERS: dict[str, Any] = {each.name: _maker(each) for each in PARAMETERS}
