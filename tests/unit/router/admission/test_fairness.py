"""Tenants share by weight, what was charged is put right, and nothing is kept when all is back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.admission.shares.fairness import FairShares


def shares(tie: float = 0.0, **waiting: int) -> FairShares:
    made = FairShares(tie)
    made.tokens_per_second = 1.0
    for tenant, count in waiting.items():
        for _ in range(count):
            made.join(tenant, 1.0)
    return made


def test_who_had_more_goes_later_and_who_is_close_is_equal() -> None:
    made = shares(100, a=3, b=3, c=3)
    made.begin("a", 100)
    made.begin("b", 101)
    assert made.leads() == {"a": 0, "b": 101, "c": 0}
    # b's ticket is back: it took a token less.
    made.settle("b", 101, 100)
    assert made.leads() == {"a": 0, "b": 0, "c": 0}


def test_tenants_are_equal_within_what_a_worker_computes_in_a_while() -> None:
    made = shares(2, a=2, b=2)
    made.begin("a", 300)
    made.tokens_per_second = 100.0
    assert made.leads() == {"a": 300, "b": 0}
    made.tokens_per_second = 150.0
    assert made.leads() == {"a": 0, "b": 0}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 500), st.booleans()),
        max_size=60,
    )
)
def test_what_did_not_wait_is_charged_as_what_waited_for_no_time(
    events: list[tuple[str, bool, int, bool]],
) -> None:
    waited, now = FairShares(0.0), FairShares(0.0)
    running: list[tuple[str, int]] = []
    for tenant, joins, tokens, ends in events:
        weight = {"a": 1.0, "b": 2.0, "c": 0.5}[tenant]
        if joins:
            waited.join(tenant, weight)
            now.join(tenant, weight)
        waited.join(tenant, weight)
        waited.begin(tenant, tokens)
        now.begin_now(tenant, weight, tokens)
        running.append((tenant, tokens))
        if ends:
            ended, charged = running.pop(0)
            waited.settle(ended, charged, charged // 2)
            now.settle(ended, charged, charged // 2)
        assert waited.leads() == now.leads()
        assert [waited.charged_tokens(one) for one in "abc"] == [
            now.charged_tokens(one) for one in "abc"
        ]
    for tenant, tokens in running:
        waited.settle(tenant, tokens, tokens)
        now.settle(tenant, tokens, tokens)
    assert len(waited) == len(now)
    with pytest.raises(ValueError, match="out of range: above 0"):
        now.begin_now("a", 0.0, 1)


def test_tenants_of_short_requests_are_equal_within_two_of_them() -> None:
    made = shares(1_000, a=9, b=1)
    for _ in range(2):
        made.begin("a", 10)
    assert made.leads() == {"a": 0, "b": 0}
    made.begin("a", 10)
    assert made.leads() == {"a": 30, "b": 0}


def test_who_runs_counts_for_lines_of_workers() -> None:
    made = shares(a=9, b=1)
    made.begin("b", 10)
    made.begin("a", 50)
    assert made.leads() == {"a": 0}, "b waits no more"
    assert made.lead("a", made.least_active()) == 40
    made.settle("b", 10, 10)
    assert made.lead("a", made.least_active()) == 0


def test_a_tenant_that_comes_back_has_saved_nothing_up() -> None:
    made = shares(a=9)
    for _ in range(3):
        made.begin("a", 100)
    made.join("b", 1.0)
    # The last of a began at 200, and it stands at 300.
    assert made.leads() == {"b": 0, "a": 100}


def test_what_a_tenant_had_too_much_is_not_forgotten_while_others_wait() -> None:
    made = shares(a=1, b=2)
    made.begin("a", 500)
    made.begin("b", 10)
    made.settle("a", 500, 500)
    made.join("a", 1.0)
    assert made.leads() == {"b": 0, "a": 490}


def test_a_tenant_of_twice_the_weight_pays_half() -> None:
    made = FairShares(0)
    for tenant, weight in (("a", 1.0), ("b", 2.0)):
        for _ in range(2):
            made.join(tenant, weight)
        made.begin(tenant, 100)
    assert made.leads() == {"b": 0, "a": 50}


def test_output_costs_more_than_prompts() -> None:
    assert FairShares(output_weight=3).cost(100, 10) == 130


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_weight_is_above_zero(weight: float) -> None:
    with pytest.raises(ValueError, match="out of range: above 0"):
        FairShares().join("a", weight)


def test_weights_of_1_2_4_give_1_2_4_of_what_is_computed() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    made = FairShares(0)
    for tenant, weight in weights.items():
        for _ in range(2):
            made.join(tenant, weight)
    given_tokens: Counter[str] = Counter()
    for turn in range(7_000):
        leads = made.leads()
        tenant = min(leads, key=lambda name: (leads[name], name))
        tokens = 50 + turn * 37 % 101
        made.begin(tenant, tokens)
        # Predicted wrong by as much as it cost.
        made.settle(tenant, tokens, 2 * tokens)
        given_tokens[tenant] += 2 * tokens
        made.join(tenant, weights[tenant])
    for tenant, weight in weights.items():
        assert given_tokens[tenant] / given_tokens["a"] == pytest.approx(weight, rel=0.01)


def test_tenants_that_are_gone_are_forgotten_while_others_go_on() -> None:
    made = shares(stays=2)
    for number in range(10_000):
        made.begin("stays", 10)
        made.settle("stays", 10, 10)
        made.join("stays", 1.0)
        made.join(f"t{number}", 1.0)
        made.leave(f"t{number}")
        assert len(made) <= 2_100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(0, 90))))
def test_all_sums_are_zero_when_all_tickets_are_back(work: list[tuple[str, int, int]]) -> None:
    made = FairShares(5)
    for tenant, _, _ in work:
        made.join(tenant, 3.0)
    for tenant, charged, _ in work[::2]:
        made.begin(tenant, charged)
        assert made.charged_tokens(tenant) >= charged
    for tenant, _, _ in work[1::2]:
        made.leave(tenant)
    for tenant, charged, used in work[::2]:
        made.settle(tenant, charged, used)
    assert len(made) == 0
    assert not any(made.charged_tokens(tenant) for tenant in "abc")
    # The next busy period begins at zero for all.
    made.join("a", 1.0)
    made.join("b", 1.0)
    assert made.leads() == {"a": 0, "b": 0}
