"""The busiest teams have series, and no more than was set, whoever comes."""

from hypothesis import given
from hypothesis import strategies as st

from baton.request.stream_events import Usage
from baton.telemetry.scope import TelemetryScope
from services.frontend.requests.teams import OTHER, BusiestTeams, Team, TeamMetrics


def team(number: int) -> Team:
    return (f"t{number}", f"p{number}")


def test_a_team_that_uses_more_takes_the_place_of_one_that_uses_less() -> None:
    removed: list[Team] = []
    teams = BusiestTeams(2, removed.append)
    assert teams.name_of(team(1), 100) == team(1)
    assert teams.name_of(team(2), 50) == team(2)
    assert teams.name_of(team(3), 100) == OTHER  # twice as much is not more than twice
    assert teams.name_of(team(3), 1) == team(3)
    assert removed == [team(2)]
    assert teams.name_of(team(2), 1) == OTHER


def test_use_of_long_ago_counts_less() -> None:
    removed: list[Team] = []
    teams = BusiestTeams(1, removed.append)
    teams.name_of(team(0), 1_000_000)
    for _ in range(300_000):
        teams.name_of(team(1), 1)
        if removed:
            break
    assert removed == [team(0)]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 10_000)), max_size=400))
def test_names_and_memory_are_bounded(requests: list[tuple[int, int]]) -> None:
    named: set[Team] = set()
    teams = BusiestTeams(3, named.discard)
    for number, tokens in requests:
        name = teams.name_of(team(number), tokens)
        if name != OTHER:
            named.add(name)
        assert len(named) <= 3
    assert len(teams._used) <= 60


def test_the_series_of_a_replaced_team_are_removed() -> None:
    scope = TelemetryScope()
    with scope.entered():
        metrics = TeamMetrics(1)
        metrics.count(team(1), "ok", usage(10))
        metrics.count(team(1), "CANCELLED", usage(10))
        metrics.count(team(2), "ok", usage(5))
        metrics.count(team(2), "ok", usage(100))
    names = {
        (sample.labels["tenant"], sample.labels["project"])
        for family in scope.registry.collect()
        for sample in family.samples
    }
    assert names == {team(2), OTHER}
    labels = {"tenant": "other", "project": "other", "kind": "prompt"}
    assert scope.registry.get_sample_value("baton_team_tokens_total", labels) == 5


def usage(prompt: int) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=0,
        computed_tokens=prompt,
        output_tokens=0,
        queue_seconds=0.0,
        kv_byte_seconds=0.0,
    )
