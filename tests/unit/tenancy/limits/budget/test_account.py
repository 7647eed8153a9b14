"""What the owner of a budget grants: nothing that it does not know, and all that there is."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from baton.tenancy.limits.budget.account import (
    REFUSED_SECONDS,
    UNKNOWN_SECONDS,
    WAIT_SECONDS,
    Account,
)
from baton.tenancy.limits.budget.charges import FOLD_SECONDS, MAX_FRONTENDS
from baton.tenancy.limits.budget.month import month_of, months_before, name
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord, encode, parse
from baton.tenancy.limits.budget.roll_call import SILENT_SECONDS, RollCall, view_of
from baton.tenancy.limits.budget.share import IDLE_SECONDS, RETRY_SECONDS, BudgetShare
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import MAX_BUDGET, Limit, LimitId, Measure, Subject, SubjectLimits

AMOUNT = 10_000
ID = LimitId(Subject.KEY, "key_1", Measure.COST, 202611)
LIMIT = Limit(ID, AMOUNT, AMOUNT)


def made(*, loaded: bool = True, reported: bool = True) -> Account:
    account = Account(LIMIT)
    account.reported = reported
    if loaded:
        account.load(None)
    return account


def ask(
    account: Account, now: float = 0.0, frontend: str = "f0", **fields: Any
) -> LimitGrant | None:
    """Return what a frontend is answered at once."""
    known = {"term": 1, "base": 0, "granted": 0, "spent": 0, "returned": 0, "confirm": True}
    known |= {"want": fields.get("need", 0)}
    told = account.answer(frontend, Ask(LIMIT, **{**known, **fields}), now)
    return next((answer for to, answer in told if to == frontend), None)


def test_one_percent_is_lent_until_the_record_is_known_and_then_the_rest() -> None:
    account = made(loaded=False)
    answer = ask(account, need=60)
    assert answer is not None
    assert answer.granted == 60
    assert ask(account, frontend="f1", need=60) is None, "it may be known in a moment"
    assert [one.granted for _, one in account.serve(0.1)] == []
    account.load(SpendRecord("other", {"gone": FrontendCharge(4, AMOUNT - 120, 5)}))
    assert [one.granted for _, one in account.serve(0.1)] == [60]
    assert account.free == 0


def test_without_the_record_more_is_refused_after_half_a_second_with_a_time_to_come_back() -> None:
    account = made(loaded=False)
    assert ask(account, need=AMOUNT // 100 + 1) is None
    assert not list(account.serve(UNKNOWN_SECONDS - 0.01))
    ((_, answer),) = account.serve(UNKNOWN_SECONDS)
    assert (answer.granted, answer.wait, answer.reserved) == (0, REFUSED_SECONDS, AMOUNT)


def test_nothing_is_granted_before_all_frontends_have_spoken() -> None:
    account = made(reported=False)
    assert ask(account, need=1) is None
    account.reported = True
    assert [one.granted for _, one in account.serve(0.1)] == [1]


def test_money_that_others_hold_is_returned_before_a_request_is_refused() -> None:
    account = made()
    first = ask(account, frontend="f0", ahead=True)
    assert first is not None
    held = first.granted
    assert held == first.chunk == AMOUNT // 1000
    assert ask(account, frontend="f0", granted=held, keeps=held) is not None
    need = AMOUNT - held + 1
    told = list(account.answer("f1", Ask(LIMIT, 1, 0, 0, 0, 0, need, need), 0.0))
    assert [(to, one.chunk) for to, one in told] == [("f0", 0)]
    returned = Ask(LIMIT, 1, 0, held, held, held, keeps=0, confirm=True)
    answers = dict(account.answer("f0", returned, 0.01))
    assert answers["f1"].granted == need


def test_a_frontend_that_does_not_return_is_not_waited_for() -> None:
    account = made()
    first = ask(account, frontend="f0", ahead=True)
    assert first is not None
    ask(account, frontend="f0", granted=first.granted, keeps=first.chunk)
    assert ask(account, frontend="f1", need=AMOUNT) is None
    ((to, answer),) = account.serve(WAIT_SECONDS)
    assert (to, answer.granted, answer.reserved) == ("f1", 0, first.granted)


def test_a_second_owner_that_writes_is_deferred_to() -> None:
    account = made()
    account.written(account.record("mine", ()))
    account.depose(1.0)
    refused = ask(account, need=1, now=1.0)
    assert refused is not None
    assert (refused.granted, refused.reserved, refused.wait > 0) == (0, AMOUNT, True)
    later = ask(account, need=1, now=7.0)
    assert later is not None
    assert later.granted == 1


def test_a_frontend_that_is_gone_stays_charged_and_is_folded_after_an_hour() -> None:
    account = made()
    account.charges.wall_seconds = 1000.0
    ask(account, need=70)
    ask(account, frontend="f1", need=30)
    account.drop("f0")
    account.written(account.record("mine", {"f1"}))
    assert account.charged == 100
    account.charges.wall_seconds += FOLD_SECONDS
    record = account.record("mine", {"f1"})
    assert (list(record.frontends), record.folded_charged, record.charged) == (["f1"], 70, 100)
    assert parse(encode(record)) == record


def test_records_are_bounded_by_folding_those_that_are_gone() -> None:
    account = made()
    gone = {f"f{number}": FrontendCharge(1, 1, 1) for number in range(MAX_FRONTENDS + 10)}
    account.load(SpendRecord("other", gone))
    record = account.record("mine", ())
    assert len(record.frontends) == MAX_FRONTENDS
    assert record.charged == len(gone)


def test_a_later_word_than_the_records_is_kept_and_an_earlier_one_is_not() -> None:
    account = made()
    ask(account, term=5, base=40, granted=40, spent=40)
    account.load(
        SpendRecord("other", {"f0": FrontendCharge(4, 10, 0), "f9": FrontendCharge(1, 7, 7)})
    )
    assert account.charged == 47
    account.load(SpendRecord("other", {"f0": FrontendCharge(6, 11, 0)}))
    assert account.charged == 11
    assert ask(account, term=5, base=40, granted=40) is None, "it is of an earlier term"


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"owner": 3}', b"\xff"])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a record of spending"):
        parse(value)


def test_a_roll_call_is_complete_once_all_say_the_same() -> None:
    call = RollCall()
    call.observe({"f0", "f1"})
    assert not call.complete(0.0)
    call.begin({"r0"}, 0.0)
    assert call.heard("f0", 0, view_of({"r0"})), "it has to hear the era"
    assert not call.heard("f0", 1, view_of({"r0"}))
    call.heard("f1", 1, view_of({"r0", "r1"}))
    assert call.missing(1.0) == ["f1"]
    call.heard("f1", 1, view_of({"r0"}))
    assert call.complete(1.0)
    call.begin({"r0", "r1"}, 2.0)
    assert not call.complete(2.0)
    call.observe({"f0"})
    assert call.missing(2.0) == ["f0"]
    assert call.complete(2.0 + SILENT_SECONDS), "it has nothing to say"


def test_a_frontend_that_spoke_before_it_was_known_has_spoken() -> None:
    call = RollCall()
    call.begin({"r0"}, 0.0)
    call.heard("f1", 1, view_of({"r0"}))
    call.observe({"f0"})
    call.heard("f0", 1, view_of({"r0"}))
    call.observe({"f0", "f1"})
    assert call.complete(0.1)
    call.observe({"f0"})
    call.observe({"f0", "f1"})
    assert call.missing(0.1) == ["f1"], "it is another one by now"


def test_without_a_router_what_is_here_is_spent_and_then_refused_with_a_time() -> None:
    share = BudgetShare(LIMIT)
    share.begin_term(1, "router", 0.0, keep=False)
    share.receive(LimitGrant(ID, 1, 50, 0, 0, 0.0), 0.0)
    share.begin_term(2, "", 1.0, keep=True)
    share.take("a", 50, 1.0)
    assert share.refusal(1, 1.0) == RETRY_SECONDS
    assert share.refusal(AMOUNT + 1, 1.0) == math.inf
    share.settle(50, 20)
    assert (share.available, share.settled, share.charged) == (30, 20, 50)


def test_what_nobody_uses_goes_back_and_what_was_spent_is_told() -> None:
    share = BudgetShare(LIMIT)
    share.begin_term(1, "router", 0.0, keep=False)
    share.wait("a", 40)
    asked = share.ask(0.0)
    assert (asked.need, asked.want) == (40, 40)
    share.receive(LimitGrant(ID, 1, 60, 20, 0, 0.0), 0.0)
    share.take("a", 40, 0.0)
    share.settle(40, 15)
    share.tick(0.1)
    share.tick(0.1 + IDLE_SECONDS)
    told = share.ask(2.0)
    assert (told.returned, told.spent, told.settled) == (45, 60, 15)
    share.receive(LimitGrant(ID, 1, 60, 20, 45, 0.0), 2.0)
    assert share.idle
    assert share.charged == 15


def test_a_month_that_is_over_is_forgotten_once_all_of_it_was_told() -> None:
    limiter = Limiter(202611)
    limiter.observe({"router"}, 1, 0.0)
    key = SubjectLimits(Subject.KEY, "key_1", budget_nanodollars_per_month=AMOUNT)
    limits = limiter.limit_set([key])
    hold = limits.hold(40)
    assert hold is not None
    assert limits.reserve(1, 0.0, hold) is None
    ((_, asked),) = limiter.take_messages(0.0)
    limiter.receive("router", LimitGrant(ID, asked.term, 40, 0, 0, 0.0), 0.0)
    assert limits.reserve(1, 0.0, hold)
    limiter.month = 202612
    assert limiter.limit_set([key]).budgets[0].limit.id.month == 202612
    limiter.tick(1.0)
    assert not limiter.all_returned, "it runs still"
    hold.settle(30)
    ((_, told),) = limiter.take_messages(1.0)
    assert (told.limit.id.month, told.settled, told.returned) == (202611, 30, 10)
    limiter.receive("router", LimitGrant(ID, told.term, 40, 0, 10, 0.0), 1.0)
    limiter.tick(2.0)
    limiter.tick(2.1)
    assert list(limiter._budgets) == [ID._replace(month=202612)]


def test_months() -> None:
    december = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    offsets = (-1, 0, 31 * 86_400 - 1, 31 * 86_400)
    found = [name(month_of(december + offset)) for offset in offsets]
    assert found == ["2026-11", "2026-12", "2026-12", "2027-01"]
    assert months_before(202611, 13) == 202510
    assert months_before(202601, 1) == 202512


@pytest.mark.parametrize("value", [-1, MAX_BUDGET + 1])
def test_a_budget_out_of_range_is_refused_by_name(value: int) -> None:
    with pytest.raises(ValueError, match="budget_nanodollars_per_month"):
        SubjectLimits(Subject.KEY, "key_1", budget_nanodollars_per_month=value)
