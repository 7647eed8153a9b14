"""A request runs once: who else may begin it, and when."""

import pytest

from baton.errors import BatonError, Reason
from baton.request.executions import ExecutionTable
from services.router.state.executions import ExecutionClaim, Executions

A, B = b"a" * 16, b"b" * 16


def refused(table: ExecutionTable[str], key: bytes, now: float = 0.0, execution: int = 99) -> bool:
    try:
        table.check(key, execution, now)
    except BatonError as error:
        assert (error.reason, error.http_status) == (Reason.ALREADY_EXISTS, 409)
        return True
    return False


def test_one_that_runs_is_not_begun_again() -> None:
    table: ExecutionTable[str] = ExecutionTable()
    assert not refused(table, A)
    assert table.begin(A, 1, "x") is None
    assert refused(table, A)
    assert not refused(table, A, execution=1), "it may be placed again"
    assert not refused(table, B)


def test_one_that_finished_is_known_for_a_minute_and_one_that_failed_is_not() -> None:
    table: ExecutionTable[str] = ExecutionTable()
    table.begin(A, 1, "x")
    table.begin(B, 2, "x")
    table.end(A, 1, 10.0, finished=True)
    table.end(B, 2, 10.0, finished=False)
    assert not refused(table, B, 10.0)
    assert refused(table, A, 69.0)
    assert not refused(table, A, 70.0)
    assert len(table) == 0


def test_one_that_was_taken_over_from_ends_nothing() -> None:
    table: ExecutionTable[str] = ExecutionTable()
    table.begin(A, 1, "x")
    assert table.begin(A, 2, "y") == (1, "x")
    table.end(A, 1, 0.0, finished=True)
    assert refused(table, A)
    table.end(A, 2, 0.0, finished=True)
    assert table.begin(A, 3, "x") is None, "what ended can be taken over too"
    assert refused(table, A)


def test_an_owner_who_goes_takes_what_it_ran_along() -> None:
    table: ExecutionTable[str] = ExecutionTable()
    table.begin(A, 1, "x")
    table.begin(B, 2, "y")
    table.end_owner("x")
    assert not refused(table, A)
    assert refused(table, B)


def test_what_is_known_is_bounded() -> None:
    table: ExecutionTable[str] = ExecutionTable(limit=3)
    keys = [bytes([number]) for number in range(4)]
    for number, key in enumerate(keys):
        table.begin(key, number, "x")
    assert [refused(table, key) for key in keys] == [False, True, True, True]
    for number, key in enumerate(keys):
        table.begin(key, number, "x")
        table.end(key, number, 0.0, finished=True)
    assert [refused(table, key) for key in keys] == [False, True, True, True]


def test_a_router_ends_executions_with_their_tickets_and_sessions() -> None:
    executions = Executions()
    claim = ExecutionClaim(key=A, execution=1)
    other = ExecutionClaim(key=A, execution=2)
    executions.check(claim, 0.0)
    executions.begin(claim, 7, "t1")
    executions.begin(claim, 7, "t2")
    with pytest.raises(BatonError, match="is already running"):
        executions.check(other, 0.0)
    executions.end_ticket(8, "t1", 0.0, finished=True)
    executions.end_ticket(7, "unknown", 0.0, finished=True)
    assert len(executions) == 1
    executions.end_ticket(7, "t1", 0.0, finished=True)
    executions.end_ticket(7, "t2", 0.0, finished=True)
    with pytest.raises(BatonError, match="ended within"):
        executions.check(other, 30.0)
    other = other._replace(take_over=True)
    executions.check(other, 30.0)
    assert executions.begin(other, 8, "t3") is None
    taking = ExecutionClaim(key=A, execution=3, take_over=True)
    executions.check(taking, 30.0)
    assert executions.begin(taking, 9, "t4") == (8, 2)
    executions.end_session(9)
    assert len(executions) == 0
    executions.check(claim, 30.0)
