"""One struct of sampling and stopping parameters: every other list of them follows it."""

import math
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from baton.request.grammar import MAX_GRAMMAR_BYTES, Grammar
from baton.sampling import (
    PARAMETERS,
    Engines,
    InvalidParameterError,
    SamplingOptions,
    SamplingParams,
    check,
    check_vocabulary,
    features_of,
    is_plainly_greedy,
    needed_features,
)
from baton.v1 import common_pb2

EXAMPLES: dict[type, Any] = {
    bool: True,
    int: 3,
    float: 0.5,
    dict: {3: -1.5},
    tuple: (4, 2),
    Grammar: Grammar.of("regex", "[a-z]*"),
}


def example(name: str, kind: Any) -> Any:
    """A value that is not the default."""
    if name in ("stop", "bad_words"):
        return ("END", "\n")
    if name == "bad_word_ids":
        return ((4, 2), (3,))
    if name == "skip_special_tokens":
        return False
    kinds = [getattr(one, "__origin__", one) for one in getattr(kind, "__args__", ())]
    return EXAMPLES[getattr(kind, "__origin__", None) or (kinds[0] if kinds else kind)]


def test_message_struct_and_options_have_the_same_parameters() -> None:
    names = [each.name for each in PARAMETERS]
    assert set(names) == {field.name for field in common_pb2.SamplingParams.DESCRIPTOR.fields}
    assert set(names) == set(get_type_hints(SamplingOptions))


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter.name)
def test_a_value_goes_through_the_message_unchanged(parameter: Any) -> None:
    value = example(parameter.name, parameter.type)
    params = SamplingParams.from_options({parameter.name: value})
    assert getattr(params, parameter.name) == value != parameter.default
    message = params.to_proto()
    assert [field.name for field, _ in message.ListFields()] == [parameter.name]
    assert SamplingParams.from_proto(message) == params
    check(params)
    check_vocabulary(params, 5)


def test_only_what_leaves_logits_and_their_order_alone_is_plainly_greedy() -> None:
    assert not is_plainly_greedy(SamplingParams(), 1)
    assert not is_plainly_greedy(SamplingParams(temperature=0.0), 2)
    greedy = {
        each.name
        for each in PARAMETERS
        if is_plainly_greedy(
            SamplingParams.from_options(
                {"temperature": 0.0} | {each.name: example(each.name, each.type)}
            ),
            1,
        )
    }
    draws = {"top_p", "top_k", "min_p", "seed"}
    ends = {"max_tokens", "stop_token_ids", "ignore_eos", "stop"}
    written = {"include_stop_str_in_output", "skip_special_tokens"}
    assert greedy == draws | ends | written | {"logprobs", "prompt_logprobs"}


def test_what_is_not_given_is_not_sent() -> None:
    assert SamplingParams.from_options({"temperature": None, "n": 2}) == SamplingParams()
    assert not SamplingParams().to_proto().ListFields()
    # Given with the value that stands for nothing elsewhere.
    sent = SamplingParams.from_options({"temperature": 0.0, "logprobs": 0, "seed": 0}).to_proto()
    assert {field.name for field, _ in sent.ListFields()} == {"temperature", "logprobs", "seed"}


def test_what_is_given_is_sent_though_it_has_the_default() -> None:
    params = SamplingParams.from_options({"temperature": 1.0, "top_k": 0, "stop": []})
    assert not params.to_proto().ListFields()
    sent = params.to_proto({"temperature", "top_k", "stop"})
    assert {field.name for field, _ in sent.ListFields()} == {"temperature", "top_k"}


def test_an_empty_list_that_means_something_else_is_not_sent() -> None:
    with pytest.raises(InvalidParameterError, match="0 entries"):
        SamplingParams.from_options({"allowed_token_ids": []}).to_proto()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.of("json_schema", '{"type": "object"}'),
        Grammar.of("regex", "\\\\d+ é"),
        Grammar.of_choices(["yes", 'no "é"']),
        Grammar.of("lark", 'start: "a"'),
    ],
    ids=lambda grammar: grammar.kind,
)
def test_every_form_of_a_grammar_goes_through_the_message(grammar: Grammar) -> None:
    params = SamplingParams(grammar=grammar)
    assert SamplingParams.from_proto(params.to_proto()) == params
    check(params)
    # Who sends none is not asked for a digest.
    message = params.to_proto()
    message.grammar.ClearField("digest")
    assert SamplingParams.from_proto(message) == params


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (common_pb2.Grammar(), "must be one of json_schema, regex, choice, lark"),
        (common_pb2.Grammar(regex=""), "regex is empty"),
        (common_pb2.Grammar(choice=common_pb2.Choices()), "at least one text"),
        (common_pb2.Grammar(choice=common_pb2.Choices(options=["a", ""])), "no empty text"),
        (
            common_pb2.Grammar(regex="a" * (MAX_GRAMMAR_BYTES + 1)),
            "262145 bytes: the limit is 262144",
        ),
        (common_pb2.Grammar(regex="a", digest=b"other"), "digest does not match the text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_grammar_that_names_nothing_is_refused(message: common_pb2.Grammar, told: str) -> None:
    with pytest.raises(InvalidParameterError, match=told) as caught:
        check(SamplingParams.from_proto(common_pb2.SamplingParams(grammar=message)))
    assert caught.value.field == "grammar"


def test_one_stop_string_may_be_given_alone() -> None:
    assert SamplingParams.from_options({"stop": "END"}).stop == ("END",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 2.5}, "2.5 is out of range: 0 to 2"),
        ({"temperature": math.nan}, "nan is out of range: 0 to 2"),
        ({"repetition_penalty": 0.0}, "0 is out of range: above 0 and up to 2"),
        ({"top_k": 10**400}, f"{10**400} is out of range: 0 to 2147483647"),
        ({"max_tokens": -1}, "-1 is out of range: at least 0"),
        ({"bad_word_ids": [[]]}, "a run of 0 tokens is out of range: 1 to 64"),
        ({"logit_bias": {1: math.inf}}, "inf is out of range: -100 to 100"),
        ({"stop": ["a"] * 5}, "5 entries are out of range: 0 to 4"),
        ({"allowed_token_ids": []}, "0 entries are out of range: 1 to 1024"),
        ({"stop": [""]}, "a string of 0 characters is out of range: 1 to 256"),
        ({"min_tokens": 9, "max_tokens": 8}, "9 is out of range: at most max_tokens, 8"),
    ],
)
def test_a_refusal_says_parameter_value_and_limit(options: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        check(SamplingParams.from_options(options))
    assert (caught.value.field, str(caught.value)) == (next(iter(options)), message)


def test_a_refusal_names_the_parameter_as_its_sender_does() -> None:
    params = SamplingParams(max_tokens=8, min_tokens=9, logprobs=21)
    with pytest.raises(InvalidParameterError) as caught:
        check(params, {"logprobs": "top_logprobs"})
    assert caught.value.field == "top_logprobs"
    with pytest.raises(InvalidParameterError, match="at most max_completion_tokens, 8"):
        check(SamplingParams(max_tokens=8, min_tokens=9), {"max_tokens": "max_completion_tokens"})


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(stop_token_ids=(1, 5)),
        SamplingParams(logit_bias={-1: 1.0}),
        SamplingParams(bad_word_ids=((1,), (2, 5))),
    ],
)
def test_token_ids_are_of_the_vocabulary(params: SamplingParams) -> None:
    with pytest.raises(InvalidParameterError, match="outside the vocabulary, 0 to 4"):
        check_vocabulary(params, 5)


def test_only_what_is_used_needs_a_feature() -> None:
    assert not list(needed_features(SamplingParams(temperature=0.5, stop=("a",))))
    params = SamplingParams(min_p=0.1, repetition_penalty=1.1, logprobs=0)
    assert list(needed_features(params)) == [
        ("min_p", "min_p"),
        ("repetition_penalty", "penalties"),
        ("logprobs", "logprobs"),
    ]


def test_parameters_that_need_one_feature_agree_on_its_engines() -> None:
    features = {each.traits.feature for each in PARAMETERS} - {None}
    assert len({feature.name for feature in features if feature}) == len(features)
    torch, vllm = set(features_of(Engines.TORCH)), set(features_of(Engines.VLLM))
    assert torch - vllm == {"prompt_logprobs"}
    assert vllm >= set(features_of(Engines.VLLM_SPECULATING)) == {"logprobs", "penalties"}
    assert "grammar" not in torch | vllm


def test_values_that_vllm_spells_otherwise_are_out_of_range_elsewhere() -> None:
    assert SamplingParams.from_vllm_options({"top_k": -1, "min_p": 0.5}).top_k == 0
    assert SamplingParams.from_vllm_options({"top_k": 7}) == SamplingParams(top_k=7)
    with pytest.raises(InvalidParameterError, match="-1 is out of range"):
        check(SamplingParams.from_options({"top_k": -1}))


def test_importing_it_is_cheap() -> None:
    code = "import sys, baton.sampling; print({'grpc', 'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "set()"
