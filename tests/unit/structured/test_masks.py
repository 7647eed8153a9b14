"""What may come next is a function of the output so far, whoever computes it and when."""

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.request.grammar import Grammar
from baton.structured import compilation
from baton.structured.compile import CompiledGrammar, compile_grammar
from baton.structured.errors import GrammarError, GrammarsBusyError
from baton.structured.grammars import MAX_GRAMMARS, MAX_WAITING, Grammars
from baton.structured.masks import MaskRequest, Masks
from baton.structured.state import GrammarState, state
from baton.structured.vocabulary import Vocabulary
from tests.support.clock import DEADLINE_SECONDS

VOCAB, PADDED = 512, 530
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 8}, "b": {"enum": [1, "é"]}},
    "required": ["a", "b"],
}
JSON = Grammar.of("json_schema", json.dumps(SCHEMA))


def allowed(masks: Masks, of: GrammarState, output: list[int], forbidden: Any = ()) -> list[int]:
    """Return the tokens of a mask after a prompt of three tokens and an output."""
    asked = MaskRequest(of, [7, 8, 9, *output], 3, frozenset(forbidden))
    (words,) = masks.begin([asked]).result()
    return [int(i) for i in np.unpackbits(words.view(np.uint8), bitorder="little").nonzero()[0]]


@pytest.fixture(scope="module")
def compiled(vocabulary: Vocabulary) -> CompiledGrammar:
    return compile_grammar(vocabulary, JSON)


@pytest.fixture(scope="module")
def masks(vocabulary: Vocabulary) -> Any:
    made = Masks(vocabulary)
    yield made
    made.close()


@given(draws=st.lists(st.integers(0, 10**6), min_size=1, max_size=40), cut=st.integers(0, 39))
def test_a_state_shown_all_at_once_is_that_shown_token_by_token(
    compiled: CompiledGrammar, masks: Masks, draws: list[int], cut: int
) -> None:
    grown = GrammarState(compiled)
    output: list[int] = []
    for draw in draws:
        choices = allowed(masks, grown, output)
        assert not grown.error
        assert all(token < VOCAB for token in choices)
        assert choices == allowed(masks, state(compiled, output), output)
        if len(choices) <= 2:  # what ends an output
            break
        output.append(choices[draw % len(choices)])
    at = min(cut, len(output))
    again = state(compiled, output[:at])
    assert allowed(masks, again, output) == allowed(masks, grown, output)


def test_what_is_forbidden_is_left_out_unless_nothing_else_is_left(
    vocabulary: Vocabulary, masks: Masks
) -> None:
    word = state(compile_grammar(vocabulary, Grammar.of_choices(["a", "b"])), [])
    a, b = vocabulary.tokenize("a")[0], vocabulary.tokenize("b")[0]
    assert allowed(masks, word, []) == sorted([a, b])
    assert allowed(masks, word, [], [a, 500]) == [b]
    assert allowed(masks, word, [], [a, b]) == sorted([a, b])


def test_padding_behind_the_tokenizer_never_comes(vocabulary: Vocabulary, masks: Masks) -> None:
    anything = state(compile_grammar(vocabulary, Grammar.of("regex", "(?s:.*)")), [])
    assert vocabulary.words == -(-PADDED // 32)
    assert max(allowed(masks, anything, [])) < VOCAB


def test_an_error_is_its_own_rows(vocabulary: Vocabulary, masks: Masks) -> None:
    digits = compile_grammar(vocabulary, Grammar.of("regex", "[0-9]+"))
    good, bad = GrammarState(digits), GrammarState(digits)
    one, letter = vocabulary.tokenize("1"), vocabulary.tokenize("a")
    rows = masks.compute(
        [MaskRequest(bad, letter, 0, frozenset()), MaskRequest(good, one, 0, frozenset())]
    )
    assert "the output so far does not match the grammar" in bad.error
    assert not rows[0].any()
    assert rows[1].any() and not good.error
    assert not allowed(masks, bad, [])


async def test_a_grammar_is_compiled_once(vocabulary: Vocabulary) -> None:
    compiled: list[bytes] = []
    go_on = threading.Event()

    def slowly(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
        compiled.append(grammar.digest)
        assert go_on.wait(10)
        return compile_grammar(vocabulary, grammar)

    grammars = Grammars(vocabulary, slowly)
    other = Grammar.of("regex", "[")
    waiting = [grammars.submit(JSON) for _ in range(3)]
    go_on.set()
    assert len({id(future.result()) for future in waiting}) == 1
    await grammars.check(JSON)
    for _ in range(2):
        with pytest.raises(GrammarError):
            await grammars.check(other)
    assert compiled == [JSON.digest, other.digest]
    # Those used last are kept.
    for number in range(MAX_GRAMMARS - 1):
        grammars.get(Grammar.of("regex", f"a{number}"))
        grammars.get(JSON)
    assert compiled.count(JSON.digest) == 1
    await grammars.check(JSON)
    with pytest.raises(GrammarError):
        grammars.get(other)
    assert compiled.count(other.digest) == 2
    grammars.close()


def test_no_more_grammars_wait_than_may(vocabulary: Vocabulary) -> None:
    go_on = threading.Event()

    def never(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
        del vocabulary, grammar
        go_on.wait(10)
        raise GrammarError("x")

    grammars = Grammars(vocabulary, never)
    try:
        for number in range(MAX_WAITING):
            grammars.submit(Grammar.of("regex", f"a{number}"))
        with pytest.raises(GrammarsBusyError):
            grammars.submit(JSON)
    finally:
        go_on.set()
        grammars.close()


async def test_cpu_time_of_a_compilation_is_limited(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "COMPILE_CPU_SECONDS", 0.1)
    ended = threading.Event()

    def compute(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
        while not ended.is_set():
            pass
        return compile_grammar(vocabulary, grammar)

    def wait(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
        ended.wait(0.5)  # by far more than 0.1 s, and no CPU time
        return compile_grammar(vocabulary, grammar)

    grammars = Grammars(vocabulary, wait)
    await grammars.check(JSON)
    grammars.close()
    grammars = Grammars(vocabulary, compute)
    try:
        with pytest.raises(GrammarError, match=r"took more than 0.1 s; simplify it"):
            await grammars.check(JSON)
        with pytest.raises(GrammarError, match=r"took more than 0.1 s; simplify it"):
            grammars.get(JSON)
    finally:
        ended.set()
        grammars.close()


async def test_a_compilation_that_other_work_delays_may_be_asked_for_again(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "COMPILE_CPU_SECONDS", 0.1)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.1)
    go_on = threading.Event()

    def wait(vocabulary: Vocabulary, grammar: Grammar) -> CompiledGrammar:
        go_on.wait(DEADLINE_SECONDS)
        return compile_grammar(vocabulary, grammar)

    grammars = Grammars(vocabulary, wait)
    try:
        with pytest.raises(GrammarsBusyError, match=r"within 0.1 s; retry later"):
            await grammars.check(JSON)
        go_on.set()
        monkeypatch.setattr(compilation, "COMPILE_SECONDS", DEADLINE_SECONDS)
        await grammars.check(JSON)
    finally:
        go_on.set()
        grammars.close()
