"""Conversion of limit messages between frontends and routers to and from frames."""

from collections.abc import Mapping

from baton.errors import invalid_field
from baton.internal.v1 import router_pb2
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import MAX_AMOUNT, NO_BUDGET, Limit, LimitId, Measure, Subject

_SUBJECTS: Mapping[Subject, router_pb2.LimitSubject.ValueType] = {
    Subject.KEY: router_pb2.LIMIT_SUBJECT_KEY,
    Subject.PROJECT: router_pb2.LIMIT_SUBJECT_PROJECT,
    Subject.TENANT: router_pb2.LIMIT_SUBJECT_TENANT,
}
_MEASURES: Mapping[Measure, router_pb2.LimitMeasure.ValueType] = {
    Measure.REQUESTS: router_pb2.LIMIT_MEASURE_REQUESTS,
    Measure.TOKENS: router_pb2.LIMIT_MEASURE_TOKENS,
    Measure.AT_ONCE: router_pb2.LIMIT_MEASURE_AT_ONCE,
    Measure.COST: router_pb2.LIMIT_MEASURE_COST,
}
_SUBJECT_OF: Mapping[int, Subject] = {number: one for one, number in _SUBJECTS.items()}
_MEASURE_OF: Mapping[int, Measure] = {number: one for one, number in _MEASURES.items()}
_INT64 = 2**63 - 1
_SUMS = ("base", "granted", "spent", "returned", "need", "want", "settled", "keeps", "recent")
_MONTHS = 197001, 999912


def ask_to_proto(ask: Ask, message: router_pb2.LimitAsk) -> None:
    """Fill a message with an ask."""
    limit = ask.limit
    _fill_id(limit.id, message.limit)
    message.amount, message.burst, message.version = limit.amount, limit.burst, limit.version
    message.term, message.base, message.granted = ask.term, ask.base, ask.granted
    message.spent, message.returned = ask.spent, ask.returned
    message.need, message.want = ask.need, ask.want
    message.ahead, message.confirm = ask.ahead, ask.confirm
    message.settled, message.keeps = ask.settled, ask.keeps
    message.recent = ask.recent


def ask_from_proto(message: router_pb2.LimitAsk) -> Ask | None:
    """Return an ask; None: it is for a limit that only a later release knows.

    Raises:
        BatonError: INVALID_FIELD, an amount is out of range.
    """
    limit_id = _id_of(message.limit)
    if limit_id is None:
        return None
    most = MAX_AMOUNT
    if limit_id.measure is Measure.COST:
        most = NO_BUDGET
        _check("limit.month", limit_id.month, *_MONTHS)
        _check("limit.month", limit_id.month % 100, 1, 12)
    for field in ("amount", "burst"):
        _check(field, getattr(message, field), 1, most)
    for field in _SUMS:
        _check(field, getattr(message, field), 0, _INT64)
    return Ask(
        Limit(limit_id, message.amount, message.burst, message.version),
        message.term,
        message.base,
        message.granted,
        message.spent,
        message.returned,
        message.need,
        message.want,
        message.ahead,
        message.confirm,
        message.settled,
        message.keeps,
        message.recent,
    )


def answer_to_proto(answer: LimitGrant, message: router_pb2.LimitAnswer) -> None:
    """Fill a message with a grant."""
    _fill_id(answer.limit_id, message.limit)
    message.term, message.granted, message.chunk = answer.term, answer.granted, answer.chunk
    message.left, message.wait_seconds = answer.left, answer.wait
    message.restart, message.reserved = answer.restart, answer.reserved


def answer_from_proto(message: router_pb2.LimitAnswer) -> LimitGrant | None:
    """Return a grant; None: it is for a limit that only a later release knows."""
    limit_id = _id_of(message.limit)
    if limit_id is None:
        return None
    return LimitGrant(
        limit_id,
        message.term,
        message.granted,
        message.chunk,
        message.left,
        message.wait_seconds,
        message.restart,
        message.reserved,
    )


def _check(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise invalid_field(f"limit_asks.{field}", f"{value} is out of range: {low} to {high}")


def _fill_id(limit_id: LimitId, message: router_pb2.LimitId) -> None:
    message.subject = _SUBJECTS[limit_id.subject]
    message.name = limit_id.name
    message.measure = _MEASURES[limit_id.measure]
    message.month = limit_id.month


def _id_of(message: router_pb2.LimitId) -> LimitId | None:
    subject, measure = _SUBJECT_OF.get(message.subject), _MEASURE_OF.get(message.measure)
    if subject is None or measure is None:
        return None
    return LimitId(subject, message.name, measure, message.month)
