"""What frontends say of recent grants is never less than what the limit's bucket lacks."""

from hypothesis import given
from hypothesis import strategies as st

from baton.tenancy.limits.recent import RecentGrants, fill_seconds
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject

LIMIT = Limit(LimitId(Subject.KEY, "key_1", Measure.TOKENS), 120, 60)


@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.integers(0, 2), st.integers(0, 60), st.booleans()),
        max_size=80,
    )
)
def test_a_bucket_never_lacks_more_than_was_granted_lately(
    events: list[tuple[float, int, int, bool]],
) -> None:
    frontends = [RecentGrants() for _ in range(3)]
    granted = [0, 0, 0]
    now, lacks = 0.0, 0.0
    for passed, number, units, back in events:
        now += passed
        lacks = max(0.0, lacks - LIMIT.per_minute / 60 * passed)
        recent = frontends[number]
        if back:
            units = min(units, granted[number])
            granted[number] -= units
            lacks = max(0.0, lacks - units)
            recent.take_back(units)
        else:
            units = min(units, int(LIMIT.burst - lacks))
            granted[number] += units
            lacks += units
            recent.add(units, LIMIT, now)
        assert sum(one.total(LIMIT, now) for one in frontends) >= lacks - 1e-6
        assert all(len(one) <= 14 for one in frontends)


def test_who_was_idle_for_as_long_as_the_bucket_takes_to_fill_was_granted_nothing() -> None:
    recent = RecentGrants()
    recent.add(50, LIMIT, 0.0)
    assert recent.total(LIMIT, 29.0) == 50
    assert fill_seconds(LIMIT) == 30.0
    assert recent.total(LIMIT, 33.0) == 0
