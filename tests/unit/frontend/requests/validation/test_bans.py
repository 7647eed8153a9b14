"""Parameters that allow and forbid tokens: what they leave nothing of is refused, naming all."""

import asyncio
from typing import Any

import pytest

from baton.engine.testing.random_checkpoint import make_tokenizer
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams
from baton.worker.wire.tokenizer_files import TokenizerFiles
from services.frontend.models.model import ServedModel
from services.frontend.requests.validation.bans import check_bans, check_bans_of
from services.frontend.requests.validation.grammar import check_grammar
from services.frontend.text.tokenizer import Tokenizer

A, B, END = 65, 66, 9


@pytest.fixture(scope="module")
def model() -> ServedModel:
    tokenizer = Tokenizer.load(TokenizerFiles(make_tokenizer(512).to_str().encode()))
    card = cluster_pb2.ModelCard(name="m", vocab_tokens=512, eos_token_ids=[END])
    return ServedModel("m", tokenizer, (card,))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (
            {"allowed_token_ids": (A,), "bad_word_ids": ((A,),)},
            ["allowed_token_ids", "bad_word_ids"],
        ),
        (
            {"allowed_token_ids": (A, B), "bad_word_ids": ((A,),), "logit_bias": {B: -100.0}},
            ["allowed_token_ids", "bad_word_ids", "logit_bias"],
        ),
        (
            {"allowed_token_ids": (A,), "logit_bias": {A: -100.0}},
            ["allowed_token_ids", "logit_bias"],
        ),
        ({"allowed_token_ids": (END,), "min_tokens": 2}, ["allowed_token_ids", "min_tokens"]),
        (
            {"allowed_token_ids": (A, END), "min_tokens": 2, "stop_token_ids": (A,)},
            ["allowed_token_ids", "min_tokens"],
        ),
        ({"bad_word_ids": tuple((one,) for one in range(512))}, ["bad_word_ids"]),
        (
            {
                "bad_word_ids": tuple((one,) for one in range(500)),
                "logit_bias": dict.fromkeys(range(500, 512), -100.0),
            },
            ["bad_word_ids", "logit_bias"],
        ),
    ],
)
def test_what_leaves_no_token_is_refused(model: ServedModel, params: Any, named: list[str]) -> None:
    with pytest.raises(BatonError) as caught:
        check_bans(SamplingParams(**params), model, {})
    error = caught.value
    assert (error.reason, error.field) == (Reason.INVALID_FIELD, named[0])
    assert f"{' and '.join(named)} leave no token" in error.message


@pytest.mark.parametrize(
    "params",
    [
        {"allowed_token_ids": (A, B), "bad_word_ids": ((A,),)},
        {"allowed_token_ids": (A,), "bad_word_ids": ((A, A),)},  # the first one is left
        {"allowed_token_ids": (A,), "logit_bias": {A: -99.0}},
        {"allowed_token_ids": (END,), "min_tokens": 2, "ignore_eos": True},
        {"allowed_token_ids": (END,)},
        {"bad_word_ids": tuple((one,) for one in range(511))},
        {},
    ],
)
def test_what_leaves_one_is_served(model: ServedModel, params: Any) -> None:
    check_bans(SamplingParams(**params), model, {})


def test_bad_words_are_those_of_the_models_tokens(model: ServedModel) -> None:
    (letter,) = model.tokenizer.encode("A", around=False)
    params = SamplingParams(allowed_token_ids=(letter,), bad_words=("A",))
    with pytest.raises(BatonError, match="allowed_token_ids and bad_words leave"):
        check_bans(params, model, {})


@pytest.mark.parametrize(
    ("grammar", "words", "left"),
    [
        (Grammar.of_choices(["yes"]), ["yes"], False),
        (Grammar.of_choices(["yes", "yes, sir"]), ["yes"], False),
        (Grammar.of_choices(["yes", "no"]), ["yes"], True),
        (Grammar.of_choices(["yes", "no"]), ["yes", "no"], False),
        (Grammar.of_choices(["yesterday"]), ["yes"], True),  # another word
        (Grammar.of_choices(["A"]), ["A"], False),
        (Grammar.of("regex", "yes"), ["yes"], False),
        (Grammar.of("regex", "yes|no"), ["yes"], True),
        (Grammar.of("json_schema", '{"type": "object"}'), ["{"], False),
        (Grammar.of("json_schema", '{"type": "object"}'), ["["], True),
        (Grammar.of("json_schema", '{"enum": ["a", "b"]}'), ["a", "b"], False),
        (Grammar.of("json_schema", '{"enum": ["a", "b"]}'), ["a"], True),
        (Grammar.of("json_schema", '{"const": true}'), ["true"], False),
        (
            Grammar.of("json_schema", '{"properties": {"name": {}}, "required": ["name"]}'),
            ["na"],
            True,
        ),
        (Grammar.of("lark", 'start: "yes" /[0-9]+/'), ["y"], False),
        (Grammar.of("lark", 'start: "yes" /[0-9]+/'), ["ye"], True),
        (Grammar.of("lark", 'start: "yes" " " /[0-9]+/'), ["yes"], False),
    ],
)
async def test_grammars_and_bad_words(
    model: ServedModel, grammar: Grammar, words: list[str], left: bool
) -> None:
    await check_grammar(grammar, "guided", model.tokenizer)
    params = SamplingParams(bad_words=tuple(words))
    checked = check_bans_of(grammar, "guided", params, model.tokenizer, {})
    if left:
        await checked
        return
    with pytest.raises(BatonError, match="guided and bad_words leave no possible output") as caught:
        await checked
    assert caught.value.field == "guided"


async def test_grammars_and_runs_of_tokens(model: ServedModel) -> None:
    ids = tuple(model.tokenizer.encode("yes", around=False))
    grammar = Grammar.of_choices(["yes"])
    await check_grammar(grammar, "guided", model.tokenizer)
    params = SamplingParams(bad_word_ids=(ids,))
    with pytest.raises(BatonError, match="guided and bad_word_ids leave no possible output"):
        await check_bans_of(grammar, "guided", params, model.tokenizer, {})
    digits = Grammar.of("regex", "[0-9]{2}")
    await check_grammar(digits, "guided", model.tokenizer)
    banned = tuple((model.tokenizer.encode(str(one), around=False)[0],) for one in range(10))
    with pytest.raises(BatonError, match="guided and bad_word_ids leave no possible output"):
        await check_bans_of(
            digits, "guided", SamplingParams(bad_word_ids=banned), model.tokenizer, {}
        )
    await asyncio.sleep(0)
    fewer = SamplingParams(bad_word_ids=banned[1:])
    await check_bans_of(digits, "guided", fewer, model.tokenizer, {})
