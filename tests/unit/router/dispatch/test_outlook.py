"""What a new request would meet, without a request."""

from collections.abc import Callable

from baton.errors import Reason
from tests.unit.router.dispatch.conftest import World

Make = Callable[..., World]


def test_nothing_waits_at_an_idle_worker(made: Make) -> None:
    world = made()
    outlook = world.dispatcher.outlook("m", "")
    assert (outlook.waits, outlook.full, outlook.wait_seconds) == (False, False, 0.0)
    assert world.dispatcher.outlook("other", "") == outlook


def test_a_busy_worker_lets_wait_for_as_long_as_all_that_waits_takes(made: Make) -> None:
    world = made(gate=0.1)
    world.ask(2_000)
    busy = world.dispatcher.outlook("m", "")
    assert (busy.waits, busy.full) == (True, False)
    assert 1.9 < busy.wait_seconds < 2.1
    world.ask(3_000)
    assert 4.9 < world.dispatcher.outlook("m", "").wait_seconds < 5.1
    assert len(world.dispatcher) == 1, "nothing was added"


def test_a_queue_is_full_for_those_that_it_rejects(made: Make) -> None:
    world = made(gate=0.1, max_tenant=2, max_total=3)
    for _ in range(3):
        world.ask(context={"tenant": "a"})
    assert world.dispatcher.outlook("m", "a").full
    assert not world.dispatcher.outlook("m", "").full
    world.ask(context={"tenant": "b"})
    assert world.dispatcher.outlook("m", "").full
    refused = world.ask(context={"tenant": "c"})
    assert world.failed()[refused].reason is Reason.OVERLOADED
    assert len(world.dispatcher) == 3
