"""The queue's questions are answered by the fleet that placements are made on."""

import pytest

from baton.errors import BatonError
from services.router.admission.planner import FleetPlanner
from services.router.admission.waiting import WaitingRequest
from services.router.policy.costs import Disaggregation, Policy
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable

LAYOUT = b"L" * 16
BLOCK = 10
CHAIN = [number.to_bytes(16, "little") for number in range(40)]


def fleet(**pending: int) -> Fleet:
    """Make workers of 100 tokens per second, `p…` for prompts only, with so many tokens to do."""
    made = Fleet(PrefixIndex(), TicketTable("r"))
    made.set_layouts([ModelLayout("m", LAYOUT, BLOCK, 1000)])
    for name, tokens in pending.items():
        role = Role.PREFILL if name[0] == "p" else Role.COMBINED if name[0] == "c" else Role.DECODE
        store = f"store-{name}"
        made.put(InstanceState(store, Role.KVSTORE))
        made.put(InstanceState(name, role, model="m", layout_id=LAYOUT, store_id=store))
        made.apply_report(
            LoadReport(
                name,
                pending_prompt_tokens=tokens,
                free_pages=1000,
                total_pages=1000,
                prefill_tokens_per_second=100.0,
            ),
            0.0,
        )
    return made


def planner(fleet: Fleet, disaggregation: Disaggregation = "auto") -> FleetPlanner:
    policy = Policy(disaggregation)
    return FleetPlanner(PlacementService(fleet, policy), "m")


def waiting(blocks: int, key: float = 0.0) -> WaitingRequest:
    chain = Chain(LAYOUT, b"".join(CHAIN[:blocks]))
    request = PlacementRequest("m", blocks * BLOCK, 10, [chain])
    return WaitingRequest(1, request, 1, 0.0, key=key)


def test_what_is_left_to_compute_is_that_where_most_is_found() -> None:
    made = fleet(c1=0, c2=0)
    asked = planner(made)
    assert asked.remaining_seconds(waiting(20).request) == 2.0
    made.index.add_blocks("c2", ENGINE, CHAIN[:15])
    assert asked.remaining_seconds(waiting(20).request) == 0.5
    # A store that any worker can fetch from counts as well.
    made.index.add_blocks("store-c1", DRAM, CHAIN[:18])
    assert asked.remaining_seconds(waiting(20).request) == pytest.approx(0.2)


def test_queues_are_those_of_workers_that_take_prompts() -> None:
    made = fleet(p1=50, d1=10)
    assert planner(made).queue_seconds(0.0) == {"p1": 0.5, "d1": 0.1}
    assert planner(made, "always").queue_seconds(0.0) == {"p1": 0.5}
    made.mark_stale("p1")
    assert planner(made).queue_seconds(0.0) == {"d1": 0.1}


def test_what_is_planned_before_makes_another_worker_better() -> None:
    asked = planner(fleet(c1=0, c2=50))
    assert asked.plan(waiting(10), {}, 0.0).worker_id == "c1"
    assert asked.plan(waiting(10), {"c1": 1.0}, 0.0).worker_id == "c2"


def test_a_prompt_that_goes_first_weighs_what_it_delays() -> None:
    made = fleet(c1=0, c2=120)
    asked = planner(made)
    asked.place(asked.plan(waiting(20, key=2.0), {}, 0.0), 1, 0.0)
    assert asked.queue_seconds(0.0) == {"c1": 2.0, "c2": 1.2}
    # It would begin at once at c1, and hold up the other for 1 s, of which half counts: 1.5 s
    # against 2.2. With a higher key it comes after it: 3 against 2.2.
    assert asked.plan(waiting(10, key=1.0), {}, 0.0).worker_id == "c1"
    assert asked.plan(waiting(10, key=3.0), {}, 0.0).worker_id == "c2"


def test_a_placement_counts_until_its_ticket_is_returned() -> None:
    made = fleet(c1=0)
    asked = planner(made)
    plan = asked.plan(waiting(10), {}, 0.0)
    assert (plan.prefill_seconds, plan.uncached_tokens) == (1.0, 100)
    placed = asked.place(plan, 1, 0.0)
    assert asked.queue_seconds(0.0) == {"c1": 1.0}
    made.return_tickets(1, [placed.ticket])
    assert asked.queue_seconds(0.0) == {"c1": 0.0}


def test_a_model_without_workers_is_an_error() -> None:
    asked = planner(Fleet(PrefixIndex(), TicketTable("r")))
    assert asked.queue_seconds(0.0) == {}
    with pytest.raises(BatonError, match="no worker serves model"):
        asked.remaining_seconds(waiting(1).request)
    # All that could take it is draining, which says so whether or not it is planned.
    made = fleet(c1=0)
    made.put(InstanceState("c1", Role.COMBINED, model="m", layout_id=LAYOUT, draining=True))
    asked = planner(made)
    with pytest.raises(BatonError, match="no decode worker"):
        asked.remaining_seconds(waiting(1).request)
    with pytest.raises(BatonError, match="no decode worker"):
        asked.plan(waiting(1), {}, 0.0)
