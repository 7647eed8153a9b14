"""Tiers are given what their weights say, and none waits for longer than its floor allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.admission.shares.tier_shares import CLAIM_REQUESTS, TierShares
from services.router.admission.shares.tiers import TierPolicy

ENTERPRISE, PRO, FREE = range(3)


def test_shares_are_the_weights_where_those_are_above_the_floors() -> None:
    policy = TierPolicy((16.0, 4.0, 1.0), (0.5, 0.1, 0.04))
    assert policy.shares == pytest.approx((16 / 21, 4 / 21, 1 / 21))
    assert policy.share(7) == policy.share(FREE)


def test_a_floor_holds_whatever_the_weights_are() -> None:
    policy = TierPolicy((1000.0, 4.0, 1.0), (0.0, 0.1, 0.05))
    assert policy.shares == pytest.approx((0.85, 0.1, 0.05))
    assert TierPolicy((5.0, 4.0), (0.25, 0.75)).shares == (0.25, 0.75)


@given(
    st.lists(st.floats(0.001, 1e6), min_size=3, max_size=3),
    st.lists(st.floats(0, 1 / 3), min_size=3, max_size=3),
)
def test_shares_are_all_there_is_and_no_less_than_floors(
    weights: list[float], floors: list[float]
) -> None:
    shares = TierPolicy(tuple(weights), tuple(floors)).shares
    assert sum(shares) == pytest.approx(1.0)
    raised = []
    for share, floor in zip(shares, floors, strict=True):
        assert share >= floor - 1e-9
        raised.append(share <= floor)
    # Those that no floor raised share by their weights.
    parts = [s / w for s, w, up in zip(shares, weights, raised, strict=True) if not up]
    assert all(part == pytest.approx(parts[0]) for part in parts)


@pytest.mark.parametrize(
    ("weights", "floors", "text"),
    [
        ((), (), "0 weights and 0 floors"),
        ((1.0, 2.0), (0.1,), "2 weights and 1 floors"),
        ((0.0,), (0.0,), "weight 0"),
        ((float("inf"),), (0.0,), "weight inf"),
        ((1.0,), (1.1,), "floor 1.1"),
        ((1.0, 1.0), (0.6, 0.6), "floors of all tiers add up to 1.2"),
        ((5.0, 4.0), (0.0, 1.0), "a tier has none: its share would be 0"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(
    weights: tuple[float, ...], floors: tuple[float, ...], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        TierPolicy(weights, floors)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("go", "go", "go", "other", "join", "settle")),
        st.integers(0, 2),
        st.integers(1, 500),
        st.floats(0, 4),
    ),
    min_size=1,
    max_size=300,
)


@given(EVENTS, st.tuples(*[st.floats(0.05, 0.33)] * 3), st.tuples(*[st.floats(0.01, 100)] * 3))
def test_a_tier_waits_no_longer_than_its_floor_allows(
    events: list[tuple[str, int, int, float]],
    floors: tuple[float, ...],
    weights: tuple[float, ...],
) -> None:
    made = TierShares(TierPolicy(weights, floors))
    running: list[tuple[int, int]] = []
    passed = dict.fromkeys(range(3), 0)
    """Tokens of others, since a tier went or began to wait."""
    turns = dict.fromkeys(range(3), 0)
    """Times that others went though it was its turn: their workers were free and its were not."""
    largest = 1
    for kind, tier, tokens, factor in events:
        if kind == "join":
            if not made.waiting(tier):
                passed[tier] = 0
            made.join(tier)
            continue
        if kind == "settle":
            if running:
                ended, charged = running.pop(tier % len(running))
                used = int(charged * factor)
                largest = max(largest, used)
                made.settle(ended, charged, used)
            continue
        waiting = [one for one in range(3) if made.waiting(one)]
        if not waiting:
            continue
        order = list(made.merge({one: iter([one]) for one in waiting}))
        goes = order[0] if kind == "go" else order[-1]
        largest = max(largest, tokens)
        if goes != order[0]:
            # The others' part of the bound is of what went in turn.
            turns[order[0]] += tokens
        for one in waiting:
            passed[one] = 0 if one == goes else passed[one] + tokens
        if goes == order[0]:
            turns[goes] = 0
        made.begin(goes, tokens)
        running.append((goes, tokens))
        for one in waiting:
            others = 2 * (largest + CLAIM_REQUESTS * largest)
            assert passed[one] <= largest / floors[one] + others + sum(turns.values())


def test_shares_follow_the_weights_of_those_that_wait() -> None:
    for among in ((ENTERPRISE, PRO, FREE), (PRO, FREE), (ENTERPRISE, FREE)):
        made = TierShares()
        had = dict.fromkeys(among, 0)
        for tier in among:
            made.join(tier)
        for turn in range(6_000):
            tier = next(made.merge({one: iter([one]) for one in among}))
            made.join(tier)
            tokens = 50 + turn * 37 % 101
            made.begin(tier, tokens)
            made.settle(tier, tokens, 2 * tokens)
            had[tier] += 2 * tokens
        total = sum(made.policy.share(tier) for tier in among)
        for tier in among:
            assert had[tier] / sum(had.values()) == pytest.approx(
                made.policy.share(tier) / total, rel=0.02
            )


def test_a_tier_that_comes_back_has_saved_nothing_up() -> None:
    made = TierShares()
    for _ in range(50):
        made.begin_now(PRO, 100)
    for tier in (PRO, FREE):
        for _ in range(9):
            made.join(tier)
    went = []
    for _ in range(6):
        went.append(next(made.merge({one: iter([one]) for one in (PRO, FREE)})))
        made.begin(went[-1], 100)
    assert went == [FREE, PRO, PRO, PRO, PRO, FREE]


def test_what_requests_cost_beyond_predictions_does_not_starve_their_tier() -> None:
    made = TierShares()
    for _ in range(40):
        made.begin_now(FREE, 100)
    made.join(FREE)
    for _ in range(40):
        made.settle(FREE, 100, 10_000)
    turns = 0
    while True:
        made.join(PRO)
        goes = next(made.merge({one: iter([one]) for one in (PRO, FREE)}))
        if goes == FREE:
            break
        made.begin(PRO, 100)
        turns += 1
    # Of one request's 10,000 tokens at a fifth of what both are given, not of 40 of them.
    assert 390 <= turns <= 410


def test_what_a_tier_could_not_use_is_its_claim_on_a_few_requests() -> None:
    made = TierShares()
    for tier in (PRO, FREE):
        for _ in range(400):
            made.join(tier)
    for _ in range(300):
        made.begin(PRO, 100)  # free's workers were busy
    went = []
    for _ in range(20):
        went.append(next(made.merge({one: iter([one]) for one in (PRO, FREE)})))
        made.begin(went[-1], 100)
    # Its own turn, four that it missed, and then again one of five.
    assert went == [FREE] * 5 + ([PRO] * 4 + [FREE]) * 3


def test_strict_tiers_go_one_after_another() -> None:
    made = TierShares(TierPolicy(strict=True))
    for tier in (FREE, PRO, ENTERPRISE):
        made.join(tier)
    lines = {FREE: iter("ff"), ENTERPRISE: iter("ee"), PRO: iter("pp")}
    assert "".join(made.merge(lines)) == "eeppff"
    assert not made.ahead(PRO)
    assert made.before(PRO, 1.0, {ENTERPRISE: 3.0, FREE: 9.0}, 100.0) == 3.0


def test_work_of_other_tiers_goes_before_a_request_by_their_shares() -> None:
    made = TierShares()
    for tier in (ENTERPRISE, PRO, FREE):
        made.join(tier)
    assert made.before(FREE, 1.0, {PRO: 99.0}, 100.0) == pytest.approx(4.0)
    assert made.before(PRO, 1.0, {FREE: 99.0, ENTERPRISE: 3.0}, 100.0) == pytest.approx(3.25)
    assert made.before(PRO, 1.0, {}, 100.0) == 0.0
    # 100 tokens of pro count as 525 of all: one second, of which free is given its part first.
    made.begin(PRO, 100)
    made.join(PRO)
    assert made.before(PRO, 0.0, {FREE: 99.0}, 100.0) == pytest.approx(0.25)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 99), st.integers(0, 99)), max_size=60))
def test_nothing_is_kept_when_all_tickets_are_back(work: list[tuple[int, int, int]]) -> None:
    made = TierShares()
    for tier, _, _ in work:
        made.join(tier)
    for tier, begun, _ in work[::2]:
        made.begin(tier, begun)
    for tier, _, _ in work[1::2]:
        made.leave(tier)
    for tier, begun, used in work[::2]:
        made.settle(tier, begun, used)
    assert len(made) == 0


@pytest.mark.parametrize("came", [(PRO, FREE), (FREE, PRO)])
def test_of_tiers_that_have_as_much_for_their_share_the_lower_one_is_most_over(
    came: tuple[int, int],
) -> None:
    shares = TierShares(TierPolicy((16.0, 4.0, 1.0), (0.0, 0.0, 0.0)))
    for tier in came:
        for _ in range({PRO: 4, FREE: 1}[tier]):
            shares.join(tier)
    assert shares.most_over(ENTERPRISE) == FREE
    shares.join(PRO)
    assert shares.most_over(ENTERPRISE) == PRO
    shares.join(ENTERPRISE)
    assert shares.most_over(FREE) == FREE, "its own, which counts with the one that comes"
