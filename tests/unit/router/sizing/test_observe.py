"""What sizing is told of a fleet and a queue."""

import math
from typing import Any

import pytest

from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.fairness import FairShares
from services.router.admission.waiting import QueuedWork, WaitingRequest
from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.sizing.demand import NO_DEMAND, ModelDemand
from services.router.sizing.observe import pools, with_queue
from services.router.sizing.replicas import ReplicaState
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import InFlightLoad, TicketTable

LAYOUT = b"L" * 16


class World:
    """A fleet whose workers report."""

    def __init__(self) -> None:
        self.fleet = Fleet(PrefixIndex(), TicketTable("r"))
        self.fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=1000)])
        self.placements = PlacementService(self.fleet)

    def add(self, name: str, role: Role = Role.COMBINED, *, draining: bool = False) -> None:
        self.fleet.put(InstanceState(name, role, model="m", layout_id=LAYOUT, draining=draining))

    def report(self, name: str, now: float = 0.0, **fields: Any) -> None:
        self.fleet.apply_report(
            LoadReport(name, free_pages=100, total_pages=100)._replace(**fields), now
        )


@pytest.fixture
def world() -> World:
    return World()


def test_replicas_are_starting_live_silent_or_draining(world: World) -> None:
    for name in ("w0", "w1", "w2", "w3"):
        world.add(name)
    for name in ("w1", "w2"):
        world.report(name)
    world.report("w3", draining=True)
    world.fleet.mark_stale("w2")
    world.add("w4", draining=True)
    pool = pools(world.fleet, "m")[Role.COMBINED]
    assert [one.state for one in pool.replicas] == [
        ReplicaState.STARTING,
        ReplicaState.LIVE,
        ReplicaState.SILENT,
        ReplicaState.DRAINING,
        ReplicaState.DRAINING,
    ]
    assert (pool.live, pool.starting, pool.there, pool.complete) == (2, 1, 3, False)


def test_pools_are_by_role_and_of_one_model(world: World) -> None:
    world.add("p", Role.PREFILL)
    world.add("d", Role.DECODE)
    world.fleet.put(InstanceState("other", Role.DECODE, model="n", layout_id=LAYOUT))
    world.fleet.put(InstanceState("store", Role.KVSTORE))
    assert {role: len(pool.replicas) for role, pool in pools(world.fleet, "m").items()} == {
        Role.PREFILL: 1,
        Role.DECODE: 1,
    }
    assert pools(world.fleet, "nobody") == {}


def test_a_rate_is_believed_after_a_second_measurement(world: World) -> None:
    world.add("w", Role.PREFILL)

    def rate() -> float | None:
        return pools(world.fleet, "m")[Role.PREFILL].prefill_rate()

    world.report("w")
    assert rate() is None
    for _ in range(5):
        world.report("w", prefill_tokens_per_second=1_000.0)
        assert rate() is None  # the same measurement, said again
    world.report("w", prefill_tokens_per_second=1_000.0, pending_prompt_tokens=5)
    assert rate() == 1_000.0


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
def test_rates_that_cannot_be_are_not_learned(world: World, value: float) -> None:
    world.add("w", Role.PREFILL)
    for pending in range(5):
        world.report("w", prefill_tokens_per_second=value, pending_prompt_tokens=pending)
    assert pools(world.fleet, "m")[Role.PREFILL].prefill_rate() is None


def test_workers_with_streams_compute_prompts_beside_them(world: World) -> None:
    fields = {"prefill_tokens_per_second": 1_000.0, "decode_step_seconds": 0.05}
    for name, role in (("w", Role.COMBINED), ("p", Role.PREFILL)):
        world.add(name, role)
        for pending in range(3):
            world.report(
                name,
                pending_prompt_tokens=pending,
                chunk_tokens=100,
                decode_chunk_tokens=50,
                **fields,
            )
    found = pools(world.fleet, "m")
    # 50 tokens in 50 ms, and the step of the streams of 50 ms.
    assert found[Role.COMBINED].prefill_rate() == pytest.approx(500.0)
    assert found[Role.PREFILL].prefill_rate() == pytest.approx(1_000.0)


def test_work_on_its_way_counts(world: World) -> None:
    world.add("w")
    world.report(
        "w", running=2, waiting=1, free_pages=60, reserved_pages=10, max_running=8, max_sequences=16
    )
    world.fleet.issue(1, 0.0, {"w": InFlightLoad(500, 1, 5)})
    (replica,) = pools(world.fleet, "m")[Role.COMBINED].replicas
    assert (replica.running, replica.waiting, replica.sequences) == (3, 1, 4)
    assert (replica.used_pages, replica.total_pages) == (55, 100)
    assert replica.pending_tokens == 500
    assert (replica.max_running, replica.block_tokens) == (8, 16)
    assert replica.has_room


def test_a_queue_is_counted_in_tokens_that_are_not_cached(world: World) -> None:
    world.add("w")
    world.report("w", prefill_tokens_per_second=1_000.0)
    queued = QueuedWork(2, 5, prefill_seconds=3.0, prompt_tokens=9_000, kv_tokens=10_000)
    demand = with_queue(NO_DEMAND, queued, world.placements, "m")
    assert demand == ModelDemand(
        queued_tokens=pytest.approx(3_000), queued_sequences=5, queued_kv_tokens=10_000
    )


def test_without_a_worker_all_tokens_of_a_queue_count(world: World) -> None:
    queued = QueuedWork(1, 1, prefill_seconds=3.0, prompt_tokens=900, kv_tokens=1_000)
    assert with_queue(NO_DEMAND, queued, world.placements, "m").queued_tokens == 900


class Planner:
    """A worker that never has room, so that all wait."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        return request.prompt_tokens / 1_000


def test_a_queue_sums_its_requests() -> None:
    queue = AdmissionQueue(FairShares())
    assert queue.queued_work == QueuedWork()
    planner: Any = Planner()
    for number, (prompt, most, choices) in enumerate([(2_000, 10, 1), (500, 9_999, 3)]):
        request = PlacementRequest("m", prompt, most, n=choices)
        queue.add(WaitingRequest(number, request, 1, 0.0), planner, 0.0)
    # Each choice has memory for up to 256 tokens of its output when it begins.
    assert queue.queued_work == QueuedWork(2, 4, 2.5, 2_500, 2_500 + 10 + 3 * 256)
    queue.remove(0)
    assert queue.queued_work == QueuedWork(1, 3, 0.5, 500, 500 + 3 * 256)
