"""The gauges follow decisions, and go with them."""

from typing import Any

import pytest

from baton.internal.v1 import router_pb2
from baton.telemetry.scope import TelemetryScope
from services.router.api.dispatcher import QueryDispatcher
from services.router.needs.publisher import NeedPublisher
from services.router.needs.shared import SharedDemand
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.sizing.settings import SizingSettings
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable
from tests.support.doubles.asker import Asker
from tests.support.loops.manual import ManualLoop

LAYOUT = b"L" * 16


class World:
    """A router's dispatcher and publisher, on a clock that tests turn."""

    def __init__(self, **settings: Any) -> None:
        self.loop: Any = ManualLoop()
        self.fleet = Fleet(PrefixIndex(), TicketTable("r"))
        self.fleet.set_layouts([ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=1000)])
        self.dispatcher = QueryDispatcher(
            PlacementService(self.fleet), clock=self.loop.time, loop=self.loop
        )
        no_etcd: Any = None
        self.shared = SharedDemand(no_etcd, "c", "r", lambda: ["r"], clock=self.loop.time)
        self.publisher = NeedPublisher(
            self.dispatcher, self.shared, SizingSettings(**settings), 0.05, clock=self.loop.time
        )
        self.scope = TelemetryScope()
        self.asker = Asker(self.dispatcher, 1)
        self._asked = 0

    def worker(self, name: str = "w0", pending: int = 0, **fields: Any) -> None:
        """Add a worker, or have it report again."""
        if self.fleet.report(name) is None:
            self.fleet.put(InstanceState(name, Role.COMBINED, model="m", layout_id=LAYOUT))
        report = LoadReport(
            name,
            pending_prompt_tokens=pending,
            free_pages=10**6,
            total_pages=10**6,
            prefill_tokens_per_second=1_000,
        )._replace(**fields)
        self.fleet.apply_report(report, self.loop.time())

    def ask(self, tokens: int) -> None:
        self._asked += 1
        query = router_pb2.PlaceQuery(
            correlation_id=self._asked, prompt_tokens=tokens, max_tokens=10, n=1
        )
        query.context.model = "m"
        query.context.request_id = f"r{self._asked}"
        self.asker.ask(query)

    def refresh(self, seconds: float = 0.0) -> None:
        self.loop.advance(seconds)
        with self.scope.entered():
            self.publisher.refresh()

    def needed(self, role: str = "combined") -> float | None:
        return self.scope.registry.get_sample_value(
            "baton_needed_replicas", {"role": role, "model": "m"}
        )

    def reasons(self) -> set[str]:
        return {
            sample.labels["reason"]
            for family in self.scope.registry.collect()
            for sample in family.samples
            if sample.name == "baton_needed_replicas_reason" and sample.value == 1
        }


@pytest.fixture
def world() -> World:
    return World()


def test_there_is_no_series_without_a_decision(world: World) -> None:
    world.refresh()
    assert world.needed() is None
    assert world.reasons() == set()
    world.worker()
    world.refresh()
    assert world.needed() is None  # not before a window of arrivals was seen
    world.refresh(31.0)
    assert world.needed() == 1
    assert world.reasons() == {"floor"}


def test_a_queue_moves_the_gauge_and_the_reason_is_one(world: World) -> None:
    world.worker()
    world.worker(pending=1)
    world.refresh(31.0)
    for _ in range(60):
        world.ask(2_000)
    world.refresh()
    # 120,000 tokens in 30 s at 700 a second; and beyond 1 s, at 1,000 a second within a minute.
    assert world.needed() == 8
    assert world.reasons() == {"backlog"}
    world.refresh(60.0)
    assert world.needed() == 8
    assert world.reasons() == {"hold_window"}


def test_what_waits_here_is_shared(world: World) -> None:
    world.worker()
    world.ask(2_000)
    world.ask(2_000)
    world.refresh()
    record = world.shared._record
    assert [one.model for one in record.models] == ["m"]
    assert record.models[0].arrived_tokens == 4_000
    assert record.models[0].queued_sequences == 1
    assert not record.covered
    world.refresh(31.0)
    assert world.shared._record.covered


def test_a_model_whose_last_worker_left_keeps_its_series(world: World) -> None:
    world.worker()
    world.refresh(31.0)
    world.fleet.remove("w0")
    world.refresh(1.0)
    assert world.needed() == 1


def test_a_request_without_a_worker_wakes_every_role(world: World) -> None:
    world.ask(100)
    world.refresh()
    assert [world.needed(role) for role in ("prefill", "decode", "combined")] == [1, 1, 1]
    assert world.reasons() == {"wake"}
