"""What metrics say of the queue: first tokens that were late, refusals, the oldest request."""

from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from baton.v1 import common_pb2
from services.router.admission.controller import TicketUsage
from tests.unit.router.dispatch.conftest import World

Make = Callable[..., World]


def kept(outcome: str) -> float:
    labels = {"class": "interactive", "outcome": outcome}
    return REGISTRY.get_sample_value("baton_router_ttft_targets_total", labels) or 0.0


def factor(world: World) -> float:
    world.dispatcher.set_gauges()
    return REGISTRY.get_sample_value("baton_router_ttft_factor", {"model": "m"}) or 0.0


def test_requests_are_refused_by_how_late_first_tokens_came(made: Make) -> None:
    world = made()
    for _ in range(100):
        one = world.ask()
        world.done(one, used={world.placed()[one]: TicketUsage(1_000, 10, 2.0)})
    assert 1.8 < factor(world) < 2.0
    running = world.ask()
    in_time = world.ask(ttft_target_seconds=4.1)
    late = world.ask(ttft_target_seconds=4.1)
    assert list(world.placed())[-1] == running
    assert in_time in world.queued()
    assert list(world.failed()) == [late]


def test_first_tokens_that_are_not_known_change_nothing(made: Make) -> None:
    world = made()
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        one = world.ask(ttft_target_seconds=9.0)
        world.done(one, used={world.placed()[one]: TicketUsage(1_000, 10, seconds)})
    one = world.ask(output_tokens=5)
    world.done(one, used={world.placed()[one]: TicketUsage(1_000, 10, 30.0)})
    assert factor(world) == 1.0


def test_targets_are_counted_with_the_time_that_requests_waited(made: Make) -> None:
    world = made()
    before = kept("kept"), kept("missed")
    first, second = world.ask(ttft_target_seconds=1.5), world.ask(ttft_target_seconds=2.5)
    plain = world.ask()
    world.turn(1.0)
    world.report("w0", 0, [world.placed()[first]])
    world.done(first, used={world.placed()[first]: TicketUsage(1_000, 10, 1.2)})
    world.turn(1.0)
    world.report("w0", 0, list(world.placed().values()))
    world.turn(1.0)
    used = {ticket: TicketUsage(1_000, 10, 1.9) for ticket in world.placed().values()}
    world.done(second, plain, used=used)
    assert (kept("kept"), kept("missed")) == (before[0] + 1, before[1] + 1)


def test_refusals_are_counted_by_class_and_reason(made: Make) -> None:
    labels = {"class": "batch", "reason": "overloaded"}
    name = "baton_router_refusals_total"
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    world = made()
    world.ask()
    batch = common_pb2.PRIORITY_CLASS_BATCH
    world.ask(context={"priority": batch}, ttft_target_seconds=0.1)
    assert REGISTRY.get_sample_value(name, labels) == before + 1


def test_the_oldest_request_is_told_with_what_it_waited_elsewhere(made: Make) -> None:
    world = made()

    def oldest() -> float | None:
        world.dispatcher.set_gauges()
        return REGISTRY.get_sample_value("baton_router_queue_oldest_seconds", {"model": "m"})

    first = world.ask()
    assert oldest() == 0
    world.ask()
    world.ask(waited_seconds=3.0)
    world.loop.advance(0.5)
    assert oldest() == pytest.approx(3.5)
    world.done(first)
    for correlation_id in world.queued():
        if correlation_id not in world.placed():
            world.cancel(correlation_id)
    assert oldest() == 0
