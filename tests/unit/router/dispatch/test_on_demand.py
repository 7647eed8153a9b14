"""Requests for models whose workers start on demand wait in the queue."""

from collections.abc import Callable

from prometheus_client import REGISTRY

from baton.errors import Reason
from baton.on_demand.state import ModelState, ModelTurn
from services.router.state.instances import InstanceState, Role
from tests.unit.router.dispatch.conftest import LAYOUT, World

Make = Callable[..., World]
READY = ModelTurn(ModelState.READY)


def hold(world: World, state: ModelState, room: float = 0.0, start: float = 0.0) -> None:
    world.dispatcher.set_turns({"m": ModelTurn(state, world.loop.time() + room, start)})


def start(world: World, name: str) -> None:
    """Let a worker start, and report."""
    world.fleet.put(InstanceState(name, Role.COMBINED, model="m", layout_id=LAYOUT))
    world.report(name)


def test_requests_wait_until_workers_serve(made: Make) -> None:
    world = made(workers=0)
    hold(world, ModelState.ON_DEMAND)
    asked = [world.ask(), world.ask()]
    world.loop.advance(200.0)
    hold(world, ModelState.STARTING)
    world.loop.advance(10.0)
    assert not world.failed()
    assert len(world.dispatcher) == 2
    start(world, "w0")
    world.loop.advance(1.0)
    assert len(world.dispatcher) == 2, "it is not ready"
    world.dispatcher.set_turns({"m": READY})
    world.loop.advance(1.0)
    world.report("w0")
    world.loop.advance(3.0)
    assert set(asked) <= set(world.placed())


def test_a_ready_model_whose_worker_is_not_known_yet_waits(made: Make) -> None:
    world = made(workers=0)
    world.dispatcher.set_turns({"m": READY})
    asked = world.ask()
    world.loop.advance(1.0)
    assert not world.failed()
    start(world, "w0")
    world.loop.advance(1.0)
    assert asked in world.placed()


def test_a_model_that_leaves_gets_no_new_requests(made: Make) -> None:
    world = made()
    hold(world, ModelState.LEAVING, room=40.0, start=5.0)
    world.ask()
    world.loop.advance(1.0)
    assert len(world.dispatcher) == 1
    world.dispatcher.set_turns({"m": READY})
    world.loop.advance(1.0)
    assert len(world.dispatcher) == 0, "it stays after all"


def test_the_start_is_part_of_the_predicted_time_to_first_token(made: Make) -> None:
    world = made()
    world.loop.advance(1.0)
    hold(world, ModelState.LEAVING, room=20.0, start=5.0)
    soon = world.ask(1_000, ttft_target_seconds=25.5)
    late = world.ask(1_000, ttft_target_seconds=27.0)
    assert world.failed()[soon].reason is Reason.OVERLOADED
    assert "predicted time to first token is 26.0 s" in world.failed()[soon].message
    assert late not in world.failed()
    outlook = world.dispatcher.outlook("m", "")
    assert outlook.waits
    assert 25.9 < outlook.wait_seconds < 26.1, "the start, and the prompt that waits"
    world.loop.advance(15.0)
    assert 10.9 < world.dispatcher.outlook("m", "").wait_seconds < 11.1


def test_a_request_that_may_not_wait_so_long_is_rejected_at_once(made: Make) -> None:
    world = made(workers=0)
    hold(world, ModelState.ON_DEMAND, room=20.0, start=5.0)
    short, long = world.ask(max_wait_seconds=24.0), world.ask(max_wait_seconds=26.0)
    assert "the predicted wait is 25.0 s" in world.failed()[short].message
    assert long not in world.failed()


def test_a_wait_for_workers_is_bounded(made: Make) -> None:
    world = made(workers=0, max_wait=60.0)
    hold(world, ModelState.ON_DEMAND)
    asked = world.ask()
    world.loop.advance(61.0)
    assert world.failed()[asked].reason is Reason.OVERLOADED


def test_a_stream_that_resumes_waits_for_workers_too(made: Make) -> None:
    world = made(workers=0)
    hold(world, ModelState.ON_DEMAND)
    world.ask(output_tokens=5)
    assert len(world.dispatcher) == 1
    start(world, "w0")
    hold(world, ModelState.LEAVING)
    resumed = world.ask(output_tokens=5)
    assert resumed in world.placed(), "workers finish what they have"


def test_the_state_is_a_metric(made: Make) -> None:
    world = made()
    world.dispatcher.set_turns({"m": READY, "n": ModelTurn(ModelState.ON_DEMAND)})
    hold(world, ModelState.STARTING)

    def shown(model: str, state: str) -> float | None:
        labels = {"model": model, "state": state}
        return REGISTRY.get_sample_value("baton_router_model_turn", labels)

    assert shown("m", "starting") == 1
    assert shown("m", "ready") is None
    assert shown("n", "on demand") is None
    world.dispatcher.set_turns({})


def test_without_a_record_nothing_waits_for_a_start(made: Make) -> None:
    world = made(workers=0)
    asked = world.ask()
    assert world.failed()[asked].reason is Reason.NO_WORKER
