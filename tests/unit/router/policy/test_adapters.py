"""Where requests for adapters go: to workers that have them, until a load takes less time."""

from typing import Any

import pytest

from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.adapters import DEFAULT_LOAD_SECONDS, AdapterLoads
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable

LAYOUT, SQL, CHAT = b"L" * 16, b"S" * 16, b"C" * 16
WORKERS = ("w0", "w1", "w2")


def report(name: str, *resident: bytes, **fields: Any) -> LoadReport:
    values = {
        "free_pages": 1000,
        "total_pages": 1000,
        "prefill_tokens_per_second": 1000.0,
        "adapter_slots": 2,
        "adapter_load_seconds": 0.3,
    }
    return LoadReport(name, "1", resident_adapters=resident, **(values | fields))


@pytest.fixture
def service() -> PlacementService:
    fleet = Fleet(PrefixIndex(), TicketTable("r"))
    fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=65_536)])
    adapters = frozenset({("sql", SQL), ("chat", CHAT)})
    for name in WORKERS:
        fleet.put(
            InstanceState(name, Role.COMBINED, "1", f"{name}:1", "m", LAYOUT, adapters=adapters)
        )
        fleet.apply_report(report(name), 0.0)
    return PlacementService(fleet)


def placed(service: PlacementService, now: float = 0.0, adapter: str = "sql", **fields: Any) -> str:
    digest = {"sql": SQL, "chat": CHAT}.get(adapter, b"")
    asked = PlacementRequest(
        model="m",
        prompt_tokens=100,
        max_tokens=10,
        chains=(),
        adapter=(adapter, digest) if adapter else None,
        **fields,
    )
    return service.place(asked, 1, now).decision.decode_worker.id


def test_a_worker_that_has_the_adapter_is_preferred(service: PlacementService) -> None:
    service.fleet.apply_report(report("w1", SQL), 0.0)
    assert placed(service) == "w1"
    plan_seconds = 0.1  # of 100 tokens
    asked = PlacementRequest("m", 100, 10, (), adapter=("chat", CHAT))
    assert service.plan(asked, 0.0).ttft_seconds >= plan_seconds + 0.3


def test_it_spreads_once_its_queue_costs_more_than_loading(service: PlacementService) -> None:
    service.fleet.apply_report(report("w1", SQL, pending_prompt_tokens=200), 0.0)
    assert placed(service) == "w1"
    service.fleet.apply_report(report("w1", SQL, pending_prompt_tokens=400), 0.0)
    assert placed(service) != "w1"


def test_a_worker_is_assumed_to_load_what_was_placed_there(service: PlacementService) -> None:
    first = placed(service)
    assert placed(service) == first, "before it reports"
    for name in WORKERS:
        service.fleet.apply_report(report(name), 10.0)
    others = {name for name in WORKERS if name != first}
    service.fleet.apply_report(report(first, pending_prompt_tokens=50), 10.0)
    assert placed(service, 10.0) in others, "it has evicted it"


def test_requests_without_adapters_go_by_queue_alone(service: PlacementService) -> None:
    service.fleet.apply_report(report("w1", SQL, pending_prompt_tokens=10), 0.0)
    service.fleet.apply_report(report("w2", pending_prompt_tokens=20), 0.0)
    assert placed(service, adapter="") == "w0"


def test_workers_that_measured_nothing_have_a_default() -> None:
    loads = AdapterLoads()
    assert loads.seconds(None, SQL, 0.0) == 0.0
    assert loads.seconds(report("w0", adapter_slots=0), SQL, 0.0) == 0.0, "it loads none"
    assert loads.seconds(report("w0", SQL), SQL, 0.0) == 0.0
    unknown = report("w0", adapter_load_seconds=0.0)
    assert loads.seconds(unknown, SQL, 0.0) == DEFAULT_LOAD_SECONDS
    loads.placed(["w0"], SQL, 0.0)
    assert loads.seconds(unknown, SQL, 1.0) == 0.0
    assert loads.seconds(unknown, SQL, 3.0) == DEFAULT_LOAD_SECONDS
