"""Records of policies: what is valid, alone and with others."""

from typing import Any

import pytest

from baton.tenancy.records.policies import ModelPolicy, check_policy_with_others
from baton.tenancy.records.tenants import check, encode, parse


def policy(**fields: Any) -> ModelPolicy:
    return ModelPolicy(**({"id": "large", "fallbacks": ("small",)} | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"id": "org/large", "fallbacks": ("org/small", "sql-adapter"), "wait_seconds": 0.0},
        {"fallbacks": (), "classes": ("batch",), "tenants": ("acme",)},
        {"context_tokens": {"free": 4096, "enterprise": 2}, "fallback": "ask", "queueing": ()},
        {"fallbacks": (), "removed": True},
    ],
)
def test_valid(fields: dict[str, Any]) -> None:
    record = policy(**fields)
    check(record)
    assert parse(ModelPolicy, record.id, encode(record)) == record


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id": "a\nb"}, "model: 'a\\nb' is not the name of a model"),
        ({"id": ""}, "model: '' is not the name of a model"),
        ({"fallbacks": ("small\x00",)}, "fallbacks: 'small\\x00' is not the name of a model"),
        ({"fallbacks": ("large",)}, "fallbacks: large cannot be a fallback of itself"),
        ({"fallbacks": ("a", "a")}, "fallbacks: each model can be named once"),
        ({"fallbacks": tuple("abcdefghi")}, "fallbacks: 9 entries exceed the limit of 8"),
        ({"wait_seconds": -1.0}, "wait_seconds: must be 0 to 3600"),
        ({"wait_seconds": float("nan")}, "wait_seconds: must be 0 to 3600"),
        ({"fallback": "never"}, "fallback: 'never' is not allow or ask"),
        ({"queueing": ("vip",)}, "queueing: 'vip' is not one of batch, interactive, premium"),
        ({"classes": ("Premium",)}, "classes: 'Premium' is not one of"),
        ({"tenants": ("a b",)}, "tenants: 'a b' is not the name of a tenant"),
        ({"tenants": ("t",) * 257}, "tenants: 257 entries exceed the limit of 256"),
        ({"context_tokens": {"gold": 10}}, "context_tokens: 'gold' is not one of free, pro"),
        ({"context_tokens": {"free": 1}}, "context_tokens: of free, must be 2 to"),
    ],
)
def test_invalid(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(policy(**fields))
    assert str(caught.value).startswith(sentence)


def test_fallbacks_cannot_form_a_circle() -> None:
    chain = [policy(id="small", fallbacks=("tiny", "other")), policy(id="tiny", fallbacks=("b",))]
    check_policy_with_others(policy(), chain)
    check_policy_with_others(policy(), [policy(), *chain])  # it replaces itself
    back = policy(id="b", fallbacks=("large",))
    with pytest.raises(ValueError, match="form a circle: large → small → tiny → b → large"):
        check_policy_with_others(policy(), [*chain, back])
    gone = policy(id="b", fallbacks=("large",), removed=True)
    check_policy_with_others(policy(), [*chain, gone])


def test_other_circles_end_the_search() -> None:
    others = [policy(id="small", fallbacks=("tiny",)), policy(id="tiny", fallbacks=("small",))]
    check_policy_with_others(policy(), others)


def test_policies_are_bounded() -> None:
    others = [policy(id=f"m{number}", fallbacks=()) for number in range(1024)]
    with pytest.raises(ValueError, match="model: there are 1024 policies: at most 1024"):
        check_policy_with_others(policy(), others)
