"""Outputs that keep to a grammar, whichever engine makes them, and wherever they go on."""

import json
import re
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import EndReason, SequenceEnded
from baton.engine.local import LocalOutput, run_local
from baton.engine.testing.random_tokenizer import make_tokenizer
from baton.request.grammar import Grammar
from baton.structured.errors import GrammarError
from baton.structured.json_schema.bounds import Bounds
from tests.support.engine.contract import assert_baseline, drain, params, prompt, request

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "kind": {"enum": ["a", "b", None]},
        "sizes": {"type": "array", "items": {"enum": [1, 23]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "kind", "sizes"],
    "additionalProperties": False,
}
GRAMMAR = Grammar.of("json_schema", json.dumps(SCHEMA))
DIGITS = Grammar.of("regex", "[0-9]{2,5}")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The tokenizer of the random checkpoints."""
    return make_tokenizer(512)


@pytest.fixture
def guided(engine: Engine) -> Engine:
    assert "grammar" in engine.info.features
    return engine


def asked(number: int = 0, grammar: Grammar = GRAMMAR, **changes: Any) -> SequenceRequest:
    fields = {"temperature": 1.0, "seed": number, "max_tokens": 256, "ignore_eos": False}
    sampling = params(grammar=grammar, **(fields | changes.pop("sampling", {})))
    return request(number, prompt(20, seed=number), sampling=sampling, **changes)


def text_of(engine: Engine, tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Return an output's text, without what ends it."""
    ends = set(engine.info.eos_token_ids)
    return tokenizer.decode([token for token in tokens if token not in ends])


def reason_of(output: LocalOutput) -> EndReason:
    assert output.ended is not None
    return output.ended.reasons[0]


def test_what_did_not_end_for_its_length_is_of_the_grammar(
    guided: Engine, tokenizer: Tokenizer
) -> None:
    others = [request(100 + i, prompt(20, seed=100 + i)) for i in range(3)]
    outputs = run_local(guided, [*(asked(number) for number in range(5)), *others])
    complete = 0
    for output in outputs[:5]:
        text = text_of(guided, tokenizer, output.tokens[0])
        if reason_of(output) is EndReason.STOP:
            jsonschema.validate(json.loads(text), SCHEMA)
            complete += 1
        else:
            assert len(output.tokens[0]) == 256
    assert complete >= 2
    # Those beside them have the tokens that they have alone.
    alone = run_local(guided, others)
    assert [each.tokens for each in outputs[5:]] == [each.tokens for each in alone]


def test_every_choice_goes_on_from_its_first_token(guided: Engine) -> None:
    penalized = {"repetition_penalty": 1.2, "logprobs": 2, "top_p": 0.9}
    (first,) = run_local(
        guided, [asked(3, sampling=penalized, choices=(0, 1, 2), prefill_only=True)]
    )
    for choice in range(3):
        (alone,) = run_local(guided, [asked(3, sampling=penalized, choices=(choice,))])
        assert alone.tokens[choice][:1] == first.tokens[choice]
        # As decode goes on with what prefill sampled.
        (rest,) = run_local(
            guided,
            [
                asked(
                    3,
                    sampling=penalized,
                    choices=(choice,),
                    output=tuple(first.tokens[choice]),
                )
            ],
        )
        assert first.tokens[choice] + rest.tokens[choice] == alone.tokens[choice]


def test_a_stream_goes_on_at_any_token_as_if_it_had_not_been_cut(guided: Engine) -> None:
    (whole,) = run_local(guided, [asked(1)])
    tokens = whole.tokens[0]
    for at in range(1, len(tokens), 7):
        (rest,) = run_local(guided, [asked(1, output=tuple(tokens[:at]))])
        assert tokens[:at] + rest.tokens[0] == tokens
        assert reason_of(rest) is reason_of(whole)


@pytest.mark.parametrize("fields", [{}, {"ignore_eos": True}, {"min_tokens": 50}])
def test_an_output_ends_with_its_text_whatever_else_is_asked(
    guided: Engine, tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    outputs = run_local(guided, [asked(i, DIGITS, sampling=fields) for i in range(4)])
    for output in outputs:
        text = text_of(guided, tokenizer, output.tokens[0])
        assert reason_of(output) is EndReason.STOP
        assert re.fullmatch(r"[0-9]{2,5}", text)
        if fields:  # as long as something else can come, it does
            assert len(text) == 5


def test_choices_and_lark_are_kept(guided: Engine, tokenizer: Tokenizer) -> None:
    options = ["yes", 'no "é"\n', "naught"]
    lark = Grammar.of("lark", 'start: "(" inner ")"\ninner: /[a-z]{1,3}/ | start')
    outputs = run_local(
        guided, [asked(0, Grammar.of_choices(options)), asked(1, lark), asked(2, lark)]
    )
    texts = [text_of(guided, tokenizer, output.tokens[0]) for output in outputs]
    assert texts[0] in options
    for text, output in zip(texts[1:], outputs[1:], strict=True):
        if reason_of(output) is EndReason.STOP:
            assert re.fullmatch(r"\(+[a-z]{1,3}\)+", text)
            assert text.count("(") == text.count(")")


def test_a_bad_grammar_costs_its_own_request_only(guided: Engine) -> None:
    with pytest.raises(GrammarError, match=r"\$: the keyword not"):
        guided.add(asked(0, Grammar.of("json_schema", '{"not": {}}')))
    assert_baseline(guided)
    # An output so far that is not of the grammar, as a client that resumes may send.
    (lost, other) = run_local(guided, [asked(1, DIGITS, output=(70, 80, 90)), asked(2, DIGITS)])
    ended = lost.ended
    assert isinstance(ended, SequenceEnded)
    assert (ended.reasons, ended.error_field) == ((EndReason.ERROR,), "grammar")
    assert "the output so far does not match the grammar" in ended.error
    assert not lost.tokens
    assert reason_of(other) is EndReason.STOP
    assert drain(guided) == []
    assert_baseline(guided)


def test_json_without_bounds_of_its_own_ends(guided: Engine, tokenizer: Tokenizer) -> None:
    bounds = Bounds(digits=6, levels=3)
    nested = {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}
    shapes = {
        '{"type":"integer"}': r"-?[0-9]{1,9}",  # a token may have several
        json.dumps(nested): r"\[{1,4}\]{1,4}",
    }
    for schema, shape in shapes.items():
        grammar = Grammar.of("json_schema", bounds.added_to(schema))
        outputs = run_local(guided, [asked(number, grammar=grammar) for number in range(6)])
        for output in outputs:
            text = text_of(guided, tokenizer, output.tokens[0])
            assert reason_of(output) is EndReason.STOP
            assert re.fullmatch(shape, text), text
