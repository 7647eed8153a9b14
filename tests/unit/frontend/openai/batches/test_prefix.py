"""Digests of what prompts begin with."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.frontend.openai.batches.checking.prefix import prompt_prefix

_DIGEST = 4
_texts = st.text(st.characters(codec="utf-8"), max_size=600)


def body(system: str, user: str, **more: Any) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({"model": "tiny", "messages": messages, **more}).encode()


@given(_texts, _texts, _texts)
def test_what_begins_alike_has_the_same_first_digests(system: str, one: str, other: str) -> None:
    first, second = prompt_prefix(body(system, one)), prompt_prefix(body(system, other))
    shared = len(json.dumps(system))
    borders = sum(128 << doubled <= shared for doubled in range(10))
    assert first[: borders * _DIGEST] == second[: borders * _DIGEST]


def test_other_fields_and_their_order_change_nothing() -> None:
    system = "be brief " * 40
    last = json.loads(body(system, "hello", temperature=0.5, seed=3))
    first = {"seed": 9, "max_tokens": 3, "messages": last["messages"], "model": "tiny"}
    assert prompt_prefix(json.dumps(first).encode()) == prompt_prefix(json.dumps(last).encode())


def test_each_border_that_is_reached_has_a_digest() -> None:
    counts = [
        len(prompt_prefix(body("x" * size, ""))) // _DIGEST for size in (1, 100, 1000, 99_999)
    ]
    assert counts == [0, 1, 4, 10]


def test_what_begins_differently_differs_from_the_first_digest_on() -> None:
    one, other = (prompt_prefix(body(start + "x" * 1000, "")) for start in "ab")
    assert {one[at : at + _DIGEST] for at in range(0, 16, _DIGEST)}.isdisjoint(
        other[at : at + _DIGEST] for at in range(0, 16, _DIGEST)
    )


def test_tools_and_models_come_before_messages() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 300}}
    with_tool, without = (prompt_prefix(body("hi", "", tools=tools)) for tools in ([tool], []))
    assert with_tool[:_DIGEST] != without[:_DIGEST]
