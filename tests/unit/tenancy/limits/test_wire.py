"""What frontends and routers tell each other of limits is read as it was written."""

import itertools

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import MAX_AMOUNT, MAX_BUDGET, Limit, LimitId, Measure, Subject
from baton.tenancy.limits.wire import (
    answer_from_proto,
    answer_to_proto,
    ask_from_proto,
    ask_to_proto,
)

ID = LimitId(Subject.KEY, "key_1", Measure.TOKENS)
ASK = Ask(Limit(ID, 60, 61, 3), 4, 5, 6, 7, 8, 9, 10, ahead=True, confirm=False)


def written(ask: Ask) -> router_pb2.LimitAsk:
    message = router_pb2.LimitAsk()
    ask_to_proto(ask, message)
    return router_pb2.LimitAsk.FromString(message.SerializeToString())


@pytest.mark.parametrize(("subject", "measure"), list(itertools.product(Subject, Measure)))
def test_every_limit_travels(subject: Subject, measure: Measure) -> None:
    of_month = measure is Measure.COST
    limit_id = LimitId(subject, "x", measure, 202611 if of_month else 0)
    amount = MAX_BUDGET if of_month else MAX_AMOUNT
    ask = ASK._replace(
        limit=Limit(limit_id, amount, 61, 3), confirm=True, ahead=False, settled=11, keeps=12
    )
    assert ask_from_proto(written(ask)) == ask
    answer = LimitGrant(limit_id, 4, 5, 6, 7, 0.25, restart=True, reserved=8)
    message = router_pb2.LimitAnswer()
    answer_to_proto(answer, message)
    assert answer_from_proto(message) == answer


@pytest.mark.parametrize("field", ["subject", "measure"])
def test_what_only_a_later_release_knows_is_passed_over(field: str) -> None:
    message = written(ASK)
    setattr(message.limit, field, 99)
    assert ask_from_proto(message) is None
    answer = router_pb2.LimitAnswer(limit=message.limit)
    assert answer_from_proto(answer) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("amount", 0),
        ("amount", MAX_AMOUNT + 1),
        ("burst", 0),
        *(
            (field, -1)
            for field in (
                "base",
                "granted",
                "spent",
                "returned",
                "need",
                "want",
                "settled",
                "keeps",
            )
        ),
    ],
)
def test_amounts_that_no_frontend_has_are_refused_by_name(field: str, value: int) -> None:
    message = written(ASK)
    setattr(message, field, value)
    with pytest.raises(BatonError, match=rf"limit_asks.{field}: {value}") as refused:
        ask_from_proto(message)
    assert refused.value.reason is Reason.INVALID_FIELD


@pytest.mark.parametrize("month", [0, 2611, 202600, 202613])
def test_a_budget_of_no_month_is_refused(month: int) -> None:
    limit = Limit(LimitId(Subject.KEY, "key_1", Measure.COST, month), 60, 60)
    with pytest.raises(BatonError, match=r"limit_asks.limit.month") as refused:
        ask_from_proto(written(ASK._replace(limit=limit)))
    assert refused.value.reason is Reason.INVALID_FIELD
