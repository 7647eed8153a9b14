"""Refusals are told one by one where they are few, and counted where they are many."""

from structlog.testing import capture_logs

from baton.errors import BatonError, Reason
from services.router.api.refusal_log import MAX_KINDS, RefusalKind, RefusalLog
from tests.support.loops.manual import ManualLoop

ERROR = BatonError(Reason.OVERLOADED, "too late")


def kind(tenant: str) -> RefusalKind:
    return RefusalKind("OVERLOADED", "m", "interactive", tenant)


def test_the_first_of_a_second_has_a_line_and_the_others_are_counted() -> None:
    loop = ManualLoop()
    refusals = RefusalLog(lambda: loop)  # type: ignore[arg-type, return-value]
    with capture_logs() as lines:
        for number, tenant in enumerate(("a", "b", "a", "b", "b")):
            refusals.add(kind(tenant), f"r{number}", ERROR)
        assert [line["event"] for line in lines] == ["router.placement.failed"]
        assert (lines[0]["request_id"], lines[0]["error"]) == ("r0", "too late")
        loop.advance(1.0)
    (_, counted) = lines
    assert (counted["event"], counted["requests"], counted["others"]) == (
        "router.placements.failed",
        4,
        0,
    )
    assert [(one["tenant"], one["requests"]) for one in counted["counts"]] == [("b", 3), ("a", 1)]
    assert counted["counts"][0].keys() == {"reason", "model", "class", "tenant", "requests"}
    with capture_logs() as lines:  # the next second begins with a line again, and ends without
        refusals.add(kind("a"), "r5", ERROR)
        loop.advance(1.0)
    assert [line["event"] for line in lines] == ["router.placement.failed"]


def test_what_is_counted_is_told_when_the_router_drains() -> None:
    loop = ManualLoop()
    refusals = RefusalLog(lambda: loop)  # type: ignore[arg-type, return-value]
    with capture_logs() as lines:
        for number in range(3):
            refusals.add(kind("a"), f"r{number}", ERROR)
        refusals.flush()
        refusals.flush()
        loop.advance(1.0)
    assert [line.get("requests", 1) for line in lines] == [1, 2]


def test_many_kinds_take_a_bounded_line_and_bounded_memory() -> None:
    loop = ManualLoop()
    refusals = RefusalLog(lambda: loop)  # type: ignore[arg-type, return-value]
    with capture_logs() as lines:
        for number in range(MAX_KINDS + 101):
            refusals.add(kind(f"tenant-{number}"), "r", ERROR)
        loop.advance(1.0)
    (_, counted) = lines
    assert (counted["requests"], len(counted["counts"])) == (MAX_KINDS + 100, 16)
    assert counted["others"] == MAX_KINDS + 100 - 16
