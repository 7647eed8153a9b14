"""Queries are placed at once or wait, and each is answered once, whatever ends its wait."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from baton.errors import Reason
from baton.internal.v1 import router_pb2
from baton.telemetry.scope import current
from baton.v1 import common_pb2
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.waiting import DEFAULT_SETTINGS
from services.router.api.service import draining
from tests.unit.router.dispatch.conftest import World

Make = Callable[..., World]

BATCH, PREMIUM = common_pb2.PRIORITY_CLASS_BATCH, common_pb2.PRIORITY_CLASS_PREMIUM
INTERACTIVE = common_pb2.PRIORITY_CLASS_INTERACTIVE


def claim(execution: int, *, take_over: bool = False) -> dict[str, Any]:
    return {"claim": {"key": b"k" * 16, "execution": execution, "take_over": take_over}}


def test_a_query_goes_at_once_to_an_idle_worker_and_waits_for_a_busy_one(made: Make) -> None:
    world = made()
    first, second = world.ask(), world.ask()
    assert list(world.placed()) == [first]
    assert world.queued() == {second: 0}
    world.report("w0", 100, [world.placed()[first]])
    world.turn()
    assert list(world.placed()) == [first, second]
    assert not world.failed()
    assert len(world.dispatcher) == 0


def test_streams_keep_the_target_that_their_class_had_when_they_were_placed(made: Make) -> None:
    world = made(workers=2)

    def limits() -> list[float]:
        limits: list[float] = world.fleet.columns("m").itl_limits(0.05).tolist()
        return sorted(limits)

    def set_target(target: float) -> None:
        policy = AdmissionPolicy({INTERACTIVE: ClassAdmission(itl_target=target)})
        world.dispatcher.set_policy(policy)

    set_target(0.0)
    world.done(world.ask())
    assert not world.fleet.tickets.stream_targets("w0"), "none that would have to be counted"
    set_target(0.02)
    first, _, late = world.ask(), world.ask(context={"priority": PREMIUM}), world.ask()
    assert limits() == [0.02, 0.05]
    set_target(0.01)
    assert limits() == [0.02, 0.05]
    world.done(first)
    assert late in world.placed(), "it waited, and has the target of when it was placed"
    assert limits() == [0.01, 0.05]
    world.end_session(1)
    assert limits() == [0.05, 0.05]


def test_orders_tell_how_long_steps_next_to_a_stream_may_take(made: Make) -> None:
    world = made(workers=2)
    world.dispatcher.set_policy(AdmissionPolicy({PREMIUM: ClassAdmission(itl_target=0.02)}))
    world.ask()
    world.ask(context={"priority": PREMIUM})
    orders = [one.placement.order for one in world.session().sent if one.HasField("placement")]
    assert [order.step_seconds for order in orders] == [0.05, 0.02]


def test_answers_come_in_the_order_of_the_queue_and_not_of_the_queries(made: Make) -> None:
    world = made()
    first, long, short = world.ask(), world.ask(5_000), world.ask(100)
    assert world.queued() == {long: 0, short: 1}
    world.done(first)
    assert list(world.placed()) == [first, short, long], "100 tokens are as much as the gate"


def test_a_returned_ticket_lets_the_next_one_go(made: Make) -> None:
    world = made()
    first, second = world.ask(), world.ask()
    world.done(first)
    assert list(world.placed()) == [first, second]


def test_a_query_goes_when_its_worker_is_taken_to_run_dry_though_nothing_is_heard(
    made: Make,
) -> None:
    world = made(workers=2)
    first, second = world.ask(1_000), world.ask(2_000)
    soon, later = world.ask(500), world.ask(3_000)
    world.turn(0.89)
    assert list(world.placed()) == [first, second]
    world.turn(0.02)
    assert list(world.placed()) == [first, second, soon]
    world.turn(1.0)
    assert list(world.placed()) == [first, second, soon, later]


def test_a_query_waits_for_a_worker_that_reports_no_progress(made: Make) -> None:
    world = made()
    world.report("w0", 5_000)
    waiting = world.ask()
    for _ in range(20):
        world.turn(1.0)
        world.report("w0", 5_000)
    assert list(world.queued()) == [waiting]
    assert not world.placed()


def test_a_class_goes_when_there_is_something_in_its_bucket_though_nothing_is_heard(
    made: Make,
) -> None:
    world = made()
    # A bucket of 1,000 tokens that 100 a second flow into.
    world.dispatcher.set_policy(AdmissionPolicy({BATCH: ClassAdmission(ceiling=0.1, waits=True)}))
    first = world.ask(1_500, context={"priority": BATCH})
    waiting = world.ask(100, context={"priority": BATCH})
    world.done(first)
    world.turn(4.9)
    assert list(world.placed()) == [first]
    world.turn(0.2)
    assert list(world.placed()) == [first, waiting]


def test_a_cancelled_query_is_not_answered(made: Make) -> None:
    world = made()
    first, second, third = world.ask(), world.ask(), world.ask()
    world.cancel(second)
    world.done(first)
    assert list(world.placed()) == [first, third]
    assert not world.failed()


def test_what_a_lost_session_waited_for_is_forgotten_and_its_tickets_end(made: Make) -> None:
    world = made()
    first, second = world.ask(), world.ask()
    other = world.ask(session=2)
    world.end_session(1)
    world.turn()
    assert list(world.placed(2)) == [other]
    assert len(world.dispatcher) == 0
    assert len(world.fleet.tickets) == 1
    assert {first, second} == {1, 2}


@pytest.mark.parametrize(
    ("settings", "fields", "after", "reason"),
    [
        ({}, {"deadline_seconds": 30.0}, 30.0, Reason.DEADLINE),
        ({"max_wait": 5.0}, {}, 5.0, Reason.OVERLOADED),
        ({"max_wait": 5.0}, {"waited_seconds": 2.0}, 3.0, Reason.OVERLOADED),
    ],
)
def test_a_query_that_waited_for_too_long_is_refused(
    made: Make, settings: Any, fields: Any, after: float, reason: Reason
) -> None:
    world = made(**settings)
    world.report("w0", 20_000)
    late = world.ask(**fields)
    world.turn(after - 0.01)
    assert not world.failed()
    world.turn(0.05)
    assert world.failed()[late].reason is reason
    assert (world.failed()[late].retry_after is None) == (reason is Reason.DEADLINE)
    assert len(world.dispatcher) == 0


def test_a_query_that_would_come_too_late_is_refused_at_once(made: Make) -> None:
    world = made()
    late = world.ask(5_000, deadline_seconds=4.0)
    assert world.failed()[late].reason is Reason.OVERLOADED
    assert world.failed()[late].retry_after
    assert not len(world.fleet.tickets)


def test_in_a_full_queue_the_lowest_class_gives_way(made: Make) -> None:
    world = made(max_total=2)
    world.ask()
    batch = world.ask(context={"priority": BATCH})
    kept = world.ask()
    refused = world.ask(context={"priority": BATCH})
    urgent = world.ask(session=2, context={"priority": PREMIUM})
    assert list(world.failed()) == [refused, batch]
    assert all(error.reason is Reason.OVERLOADED for error in world.failed().values())
    assert world.failed()[batch].retry_after
    assert list(world.queued()) == [batch, kept]
    assert list(world.queued(2)) == [urgent]


def test_one_tenant_that_floods_the_queue_leaves_room_for_others(made: Make) -> None:
    world = made(max_tenant=1)
    world.ask()
    one = world.ask(context={"tenant": "a"})
    more = world.ask(context={"tenant": "a"})
    other = world.ask(context={"tenant": "b"})
    assert list(world.queued()) == [one, other]
    assert world.failed()[more].reason is Reason.OVERLOADED
    assert "'a'" in world.failed()[more].message


def test_a_draining_router_lets_go_what_waits_and_holds_nothing_more(made: Make) -> None:
    world = made(workers=1)
    first, waiting = world.ask(), world.ask(session=2)
    world.dispatcher.drain(draining())
    assert world.failed(2)[waiting].reason is Reason.DRAINING
    late = world.ask(session=2)
    assert world.failed(2)[late].reason is Reason.DRAINING
    world.done(first)
    now = world.ask(session=2)
    assert now in world.placed(2)


def test_streams_that_go_on_and_frontends_of_the_release_before_never_wait(made: Make) -> None:
    world = made()
    world.ask()
    resumed = world.ask(output_tokens=5)
    assert resumed in world.placed()
    old = router_pb2.PlaceQuery(correlation_id=99, prompt_tokens=10, max_tokens=1)
    old.context.model = "m"
    world.session().ask(old, may_wait=False)
    assert 99 in world.placed()
    assert not world.queued()


def test_urgent_requests_of_class_batch_go_as_interactive_ones(made: Make) -> None:
    world = made()
    first = world.ask()
    policy = AdmissionPolicy({INTERACTIVE: ClassAdmission(ttft_target=0.001)})
    world.dispatcher.set_policy(policy)
    batch = world.ask(context={"priority": BATCH})
    urgent = world.ask(context={"priority": BATCH}, urgent=True)
    premium = world.ask(context={"priority": PREMIUM}, urgent=True)
    assert not world.failed(), "the target of interactive requests is not theirs"
    for one in (first, premium, urgent, batch):
        assert list(world.placed())[-1] == one
        world.done(one)
    orders = [one.placement.order for one in world.session().sent if one.HasField("placement")]
    assert [order.priority_class for order in orders] == [1, 0, 1, 2]


def test_what_no_worker_can_take_is_refused_at_once_though_others_wait(made: Make) -> None:
    world = made()
    world.ask()
    world.ask()
    for fields, reason in (
        ({"excluded_instances": ["w0"]}, Reason.NO_WORKER),
        ({"prompt_tokens": 2_000_000}, Reason.NO_CAPACITY),
        ({"context": {"model": "nobody"}}, Reason.MODEL_NOT_FOUND),
        ({"waited_seconds": -1.0}, Reason.INVALID_FIELD),
        ({"deadline_seconds": float("nan")}, Reason.INVALID_FIELD),
        ({"expected_output_tokens": -1}, Reason.INVALID_FIELD),
    ):
        asked = world.ask(**fields)
        assert world.failed()[asked].reason is reason


def test_a_claim_that_waits_is_refused_to_others_and_taken_over(made: Make) -> None:
    world = made()
    first = world.ask()
    waiting = world.ask(**claim(1))
    refused = world.ask(session=2, **claim(2))
    assert world.failed(2)[refused].reason is Reason.ALREADY_EXISTS
    taker = world.ask(session=2, **claim(3, take_over=True))
    assert world.failed()[waiting].reason is Reason.ABORTED
    assert world.session().superseded == [1]
    world.done(first)
    assert list(world.placed(2)) == [taker]
    again = world.ask(session=3, **claim(4))
    assert world.failed(3)[again].reason is Reason.ALREADY_EXISTS
    assert len(world.dispatcher) == 0


def test_a_claim_that_runs_goes_on_until_the_one_that_takes_over_is_placed(made: Make) -> None:
    world = made()
    running = world.ask(**claim(1))
    world.ask(session=2, **claim(2, take_over=True))
    assert world.session().superseded == []
    world.report("w0", 0, [world.placed()[running]])
    world.turn()
    assert world.session().superseded == [1]


@pytest.mark.parametrize("take_over", [False, True])
def test_an_execution_that_asks_again_is_not_superseded(made: Make, take_over: bool) -> None:
    world = made()
    first = world.ask()
    one = world.ask(**claim(1, take_over=take_over))
    two = world.ask(**claim(1, take_over=take_over))
    assert list(world.queued()) == [one, two], "a request may ask for several of its streams"
    world.report("w0", 0, list(world.placed().values()))
    world.turn()
    world.report("w0", 0, list(world.placed().values()))
    world.turn()
    assert list(world.placed()) == [first, one, two]
    assert world.session().superseded == []
    assert not world.failed()


def test_an_execution_that_asks_again_on_another_session_has_left_the_first(made: Make) -> None:
    world = made()
    first = world.ask()
    left = world.ask(**claim(1))
    again = world.ask(session=2, **claim(1))
    assert world.failed()[left].reason is Reason.ABORTED
    assert world.session().superseded == []
    world.done(first)
    world.end_session(1)
    assert list(world.placed(2)) == [again]
    refused = world.ask(session=3, **claim(2))
    assert world.failed(3)[refused].reason is Reason.ALREADY_EXISTS


def test_all_that_an_execution_waits_for_goes_when_another_takes_over(made: Make) -> None:
    world = made()
    world.ask()
    waiting = [world.ask(**claim(1)), world.ask(**claim(1))]
    taker = world.ask(**claim(2, take_over=True))
    assert list(world.failed()) == waiting
    assert set(world.session().superseded) == {1}
    assert taker in world.queued()


@pytest.mark.parametrize("priority", [0, 99, -1])
def test_a_priority_class_that_is_not_known_counts_as_interactive(
    made: Make, priority: int
) -> None:
    world = made()
    placed = world.ask(context={"priority": priority})
    waits = world.ask(context={"priority": priority})
    cancelled = world.ask(context={"priority": priority})
    world.dispatcher.set_gauges()
    lengths = [
        current().registry.get_sample_value(
            "baton_router_queue_length", {"model": "m", "class": name}
        )
        for name in ("premium", "interactive", "batch")
    ]
    assert lengths == [0, 2, 0]
    world.cancel(cancelled)
    world.done(placed)
    assert list(world.placed()) == [placed, waits]
    orders = [one.placement.order for one in world.session().sent if one.HasField("placement")]
    assert [order.priority_class for order in orders] == [1, 1]


def test_a_claim_is_free_again_when_what_waited_with_it_was_cancelled(made: Make) -> None:
    world = made()
    first = world.ask()
    waiting = world.ask(**claim(1))
    world.cancel(waiting)
    other = world.ask(**claim(2))
    world.done(first)
    assert other in world.placed()


def test_sessions_hear_that_the_router_lives_while_their_queries_wait(made: Make) -> None:
    world = made()
    first = world.ask()
    world.turn(0.5)
    assert world.session().beats == 0
    world.report("w0", 3_000, world.placed().values())
    world.ask()
    world.turn(1.0)
    assert world.session().beats >= 9
    world.report("w0")
    world.done(first)
    beats = world.session().beats
    world.turn(1.0)
    assert world.session().beats <= beats + 1


def test_placements_carry_their_order_in_seconds_since_the_epoch(made: Make) -> None:
    world = made()
    first, second = world.ask(), world.ask(context={"priority": BATCH})
    world.done(first)
    orders = {
        one.placement.correlation_id: one.placement.order
        for one in world.session().sent
        if one.HasField("placement")
    }
    assert (orders[first].tier, orders[first].priority_class) == (0, 1)
    assert orders[second].priority_class == 2
    arrived = time.time() - time.monotonic()
    assert orders[second].key == pytest.approx(1.0 + DEFAULT_SETTINGS.age * arrived, abs=1.0)


def test_reports_of_many_workers_are_planned_once(made: Make) -> None:
    world = made(workers=50)
    for _ in range(50):
        world.ask()
    waiting = world.ask()
    planned = []
    plan = world.dispatcher.placements.plan
    world.dispatcher.placements.plan = lambda *args: planned.append(1) or plan(*args)  # type: ignore
    for name in world.names:
        world.report(name, 5_000)
    world.report("w7", 50, list(world.placed().values()))
    world.turn()
    assert waiting in world.placed()
    assert len(planned) == 1
