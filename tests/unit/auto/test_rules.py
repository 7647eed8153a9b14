"""Rules over features: which one matches, and the order of its models."""

from typing import Any

import pytest

from baton.auto.features import RequestFeatures
from baton.auto.rules import AutoChoice, CompiledRules
from baton.tenancy.records.auto import AutoRule, AutoRules


def request(text: str = "Hello", **fields: Any) -> RequestFeatures:
    return RequestFeatures((text,), **{"prompt_tokens": 10, **fields})


def matches(features: RequestFeatures, **conditions: Any) -> bool:
    rule = AutoRule(name="a", models=("large",), **conditions)
    return CompiledRules(AutoRules(models=("small",), rules=(rule,))).match(features) is rule


@pytest.mark.parametrize(
    ("conditions", "yes", "no"),
    [
        ({"min_prompt_tokens": 10}, {}, {"prompt_tokens": 9}),
        ({"max_prompt_tokens": 10}, {}, {"prompt_tokens": 11}),
        ({"min_output_tokens": 5}, {"output_tokens": 5}, {"output_tokens": 4}),
        ({"max_output_tokens": 5}, {"output_tokens": 5}, {}),
        ({"min_questions": 2}, {"text": "Who? Why?"}, {"text": "Who?"}),
        ({"max_questions": 1}, {}, {"text": "Who? Why?"}),
        ({"code": True}, {"text": "def f(x):"}, {}),
        ({"code": False}, {}, {"text": "def f(x):"}),
        ({"tools": True}, {"tools": True}, {}),
        ({"schema": True}, {"schema": True}, {}),
        ({"pictures": False}, {}, {"pictures": True}),
        (
            {"languages": ("de", "fr")},
            {"text": "Was ist das für ein Tier?"},
            {"text": "what is it"},
        ),
        ({"words": ("prove",)}, {"text": "Prove it!"}, {"text": "improve it"}),
        ({"words": ("step by step",)}, {"text": "go step-by-step"}, {"text": "step, by, now"}),
        ({"tiers": ("pro",)}, {"tier": "pro"}, {"tier": "free"}),
        ({"classes": ("batch",)}, {"priority_class": "batch"}, {"priority_class": "premium"}),
        ({"labels": ("hard",)}, {"label": "hard"}, {}),
        ({"code": True, "tools": True}, {"text": "a();", "tools": True}, {"text": "a();"}),
    ],
)
def test_a_rule_matches_where_all_its_conditions_hold(
    conditions: dict[str, Any], yes: dict[str, Any], no: dict[str, Any]
) -> None:
    assert matches(request(**yes), **conditions)
    assert not matches(request(**no), **conditions)


def test_the_first_rule_decides_and_else_the_models_of_all() -> None:
    rules = CompiledRules(
        AutoRules(
            models=("small", "large"),
            rules=(
                AutoRule(name="tools", models=("medium",), tools=True),
                AutoRule(name="code", models=("large",), code=True),
            ),
        )
    )
    assert rules.choose(request("a();", tools=True)) == AutoChoice("tools", ("medium",))
    assert rules.choose(request("a();")) == AutoChoice("code", ("large",))
    assert rules.choose(request()) == AutoChoice("", ("small", "large"))


def test_models_with_a_long_wait_come_last_and_cheap_ones_first() -> None:
    waits = {"a": 3.0, "b": 0.5, "c": 9.0}
    costs = {"a": 5, "b": 7, "c": 1}
    names = ("a", "b", "c")
    record = AutoRules(
        models=names,
        max_wait_seconds=2,
        rules=(AutoRule(name="cheap", models=names, tools=True, cheapest=True),),
    )
    rules = CompiledRules(record)
    known: dict[str, Any] = {"wait_of": waits.__getitem__, "cost_of": costs.__getitem__}
    assert rules.choose(request(), **known).models == ("b", "a", "c")
    assert rules.choose(request(tools=True), **known).models == ("b", "c", "a")
    waits["b"] = 2.1  # all are busy
    assert rules.choose(request(), **known).models == names
