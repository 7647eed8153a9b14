"""Aliases: what a record may say, and which target a conversation gets."""

from itertools import pairwise

import pytest

from baton.tenancy.records.aliases import (
    MAX_TARGETS,
    AliasTarget,
    ModelAlias,
    check_alias,
    check_with_others,
)

CONVERSATIONS = [f"conversation {number}".encode() for number in range(4000)]


def alias(ident: str, **weights: int) -> ModelAlias:
    return ModelAlias(
        id=ident, targets=tuple(AliasTarget(model, weight) for model, weight in weights.items())
    )


def test_a_conversation_keeps_its_target() -> None:
    one = alias("x", small=95, large=5)
    for conversation in CONVERSATIONS[:50]:
        assert len({one.choose(conversation) for _ in range(3)}) == 1
    assert {alias("x", small=1).choose(c) for c in CONVERSATIONS[:50]} == {"small"}


def test_targets_get_their_parts_and_weights_move_no_more_than_they_must() -> None:
    parts = {}
    for weight in (5, 10, 50):
        one = alias("x", small=100 - weight, large=weight)
        parts[weight] = {c for c in CONVERSATIONS if one.choose(c) == "large"}
        # Four standard deviations of a binomial distribution.
        most = 4 * (4000 * weight / 100 * (1 - weight / 100)) ** 0.5
        assert abs(len(parts[weight]) - 40 * weight) < most
    for less, more in pairwise(parts.values()):
        assert less < more, "a larger weight takes conversations, and gives none away"


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (alias("a b", small=1), "alias: 'a b' is not the name of a model or adapter"),
        (alias("x", **{"../etc": 1}), "targets: '../etc' is not the name"),
        (alias("x", x=1), "targets: x cannot be an alias of itself"),
        (alias("x", small=0), "targets: the weight 0 of small is out of range: 1 to 10000"),
        (alias("x", small=1, large=10_001), "the weight 10001 of large is out of range"),
        (
            ModelAlias(id="x", targets=(AliasTarget("small"),) * 2),
            "targets: each model can be named once",
        ),
        (
            alias("x", **{f"m{number}": 1 for number in range(MAX_TARGETS + 1)}),
            "targets: 9 entries exceed the limit of 8",
        ),
    ],
)
def test_a_bad_record_is_refused_by_its_field(record: ModelAlias, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^(alias|targets): ") as caught:
        check_alias(record)
    assert sentence in str(caught.value)


def test_no_alias_means_an_alias() -> None:
    others = [alias("x", small=1), ModelAlias(id="gone")]
    check_with_others(alias("x", large=1), others)
    check_with_others(alias("y", gone=1), others)
    check_with_others(ModelAlias(id="small"), others)  # removes one
    with pytest.raises(ValueError, match="targets: x is an alias itself, of small: name a model"):
        check_with_others(alias("y", x=1), others)
    with pytest.raises(ValueError, match="alias: small is what the alias x means: use another"):
        check_with_others(alias("small", large=1), others)
