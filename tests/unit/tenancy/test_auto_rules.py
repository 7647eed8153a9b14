"""The record of rules for `auto`: what it may say."""

from typing import Any

import pytest

from baton.tenancy.records.auto import MAX_RULES, AutoRule, AutoRules, check_auto
from baton.tenancy.records.tenants import encode, parse


def rules(*some: AutoRule, **fields: Any) -> AutoRules:
    return AutoRules(models=("small",), rules=some, **fields)


def rule(name: str = "a", **fields: Any) -> AutoRule:
    return AutoRule(name=name, models=("large", "small"), **fields)


def test_a_record_is_stored_and_read() -> None:
    record = rules(rule(code=True, min_questions=2), rule("b", words=("step by step",)))
    assert parse(AutoRules, "auto", encode(record)) == record
    assert record.names == ("small", "large")
    check_auto(AutoRules())  # removed


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (AutoRules(id="other"), "id: must be auto"),
        (AutoRules(models=("a b",)), "models: 'a b' is not the name of a model or adapter"),
        (AutoRules(models=("auto",)), "models: auto cannot mean itself: name a model"),
        (AutoRules(models=("a", "a")), "models: each model can be named once"),
        (
            AutoRules(models=tuple(f"m{number}" for number in range(9))),
            "models: 9 models: must be 1 to 8",
        ),
        (rules(max_wait_seconds=-1), "max_wait_seconds: must be 0 to 3600"),
        (
            rules(*(rule(f"r{n}", min_prompt_tokens=100 - n) for n in range(MAX_RULES + 1))),
            "rules: 65 rules exceed the limit of 64",
        ),
        (rules(rule("A!", code=True)), "rules: 'A!' is not a name: lower-case letters, digits"),
        (
            rules(AutoRule(name="a", models=("auto",), code=True)),
            "rules: models of rule a: auto cannot mean itself",
        ),
        (rules(rule()), "rules: a has no condition, so that no rule after it can match: put its"),
        (
            rules(rule(min_prompt_tokens=9, max_prompt_tokens=8)),
            "rules: a can never match: min_prompt_tokens 9 is over max_prompt_tokens 8",
        ),
        (rules(rule(min_questions=-1)), "rules: min_questions and max_questions of rule a must be"),
        (rules(rule(languages=("xx",))), "rules: languages of rule a: 'xx' is not one of ar, de"),
        (rules(rule(tiers=("gold",))), "rules: tiers of rule a: 'gold' is not one of free, pro"),
        (rules(rule(classes=("slow",))), "rules: classes of rule a: 'slow' is not one of batch"),
        (rules(rule(words=("a\nb",))), "rules: words of rule a: 'a\\nb' is not a word or phrase"),
        (rules(rule(words=("w",) * 65)), "rules: words of rule a: at most 64"),
        (rules(rule(code=True), rule(tools=True)), "rules: the name a can be used once"),
    ],
)
def test_a_bad_record_is_refused_by_its_field(record: AutoRules, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^(id|models|rules|max_wait_seconds): ") as caught:
        check_auto(record)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("earlier", "later", "shadowed"),
    [
        ({"code": True}, {"code": True, "tools": True}, True),
        ({"code": True, "tools": True}, {"code": True}, False),
        ({"code": True}, {"code": False}, False),
        ({"min_prompt_tokens": 10}, {"min_prompt_tokens": 20}, True),
        ({"min_prompt_tokens": 20}, {"min_prompt_tokens": 10}, False),
        ({"max_questions": 3}, {"max_questions": 2}, True),
        ({"max_questions": 3}, {"min_questions": 2}, False),
        ({"languages": ("de", "fr")}, {"languages": ("de",)}, True),
        ({"languages": ("de",)}, {"languages": ("de", "fr")}, False),
        ({"languages": ("de",)}, {"code": True}, False),
        ({"words": ("prove", "why")}, {"words": ("why",), "code": False}, True),
    ],
)
def test_a_rule_that_never_matches_is_refused(
    earlier: dict[str, Any], later: dict[str, Any], shadowed: bool
) -> None:
    record = rules(rule("first", **earlier), rule("second", **later))
    if not shadowed:
        check_auto(record)
        return
    with pytest.raises(ValueError, match="second can never match: first before it matches every"):
        check_auto(record)
