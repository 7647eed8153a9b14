"""Who checks a schema lets others run meanwhile."""

import json
from types import SimpleNamespace

import pytest

from baton.structured import pauses
from baton.structured.json_schema.schema import check_schema, parse_schema
from baton.structured.pauses import Pauses

LOOK_SECONDS = 0.00001


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """For how long the thread ran before each pause, and how long that was: each look at the clock
    takes ten microseconds."""
    now = resumed = 0.0
    noted: list[tuple[float, float]] = []

    def look() -> float:
        nonlocal now
        now += LOOK_SECONDS
        return now

    def sleep(seconds: float) -> None:
        nonlocal now, resumed
        noted.append((now - resumed, seconds))
        now += seconds
        resumed = now

    monkeypatch.setattr(pauses, "time", SimpleNamespace(perf_counter=look, sleep=sleep))
    return noted


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": [{"enum": ["a", "b"]}] * 500},
        {"properties": {f"p{i}": {"type": "string"} for i in range(300)}},
        {"allOf": [{"minimum": i} for i in range(500)]},
        {"enum": [[i] for i in range(500)]},
    ],
    ids=lambda schema: next(iter(schema)),
)
def test_a_check_pauses_for_most_of_its_time(
    ran: list[tuple[float, float]], schema: object
) -> None:
    made = Pauses()
    check_schema(parse_schema(json.dumps(schema), made), made)
    assert len(ran) > 10
    assert max(before for before, _ in ran) < 0.0003
    assert all(pause > 5 * before for before, pause in ran)


def test_a_small_schema_is_checked_at_once(ran: list[tuple[float, float]]) -> None:
    made = Pauses()
    check_schema(parse_schema('{"properties": {"a": {"type": "string"}}}', made), made)
    assert not ran
