"""From a place query to a placement: models, tickets, candidates that follow reports."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.kv.keys import pack
from services.router.api.dispatcher import QueryDispatcher
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import NOTHING, InFlightLoad, TicketTable
from tests.support.doubles.asker import Asker
from tests.support.examples import examples
from tests.support.loops.manual import ManualLoop

LAYOUT = b"L" * 16
CHAIN = [i.to_bytes(16, "little") for i in range(64)]
CARD = ModelLayout("m", LAYOUT, block_tokens=16, block_bytes=65_536)
WORKERS = {"p1": Role.PREFILL, "p2": Role.PREFILL, "d1": Role.DECODE, "d2": Role.DECODE}


def instance(id: str, role: Role, **fields: Any) -> InstanceState:  # noqa: A002
    of_workers = {"layout_id": LAYOUT, "model": "m", "store_id": "store"} if role.is_worker else {}
    values = {"incarnation": "1", "address": f"{id}:1", **of_workers}
    return InstanceState(id, role, **(values | fields))


def report(id: str, **fields: Any) -> LoadReport:  # noqa: A002
    values = {"free_pages": 1000, "total_pages": 1000, "prefill_tokens_per_second": 1000.0}
    return LoadReport(id, "1", **(values | fields))


@pytest.fixture
def fleet() -> Fleet:
    return make_fleet()


def make_fleet() -> Fleet:
    fleet = Fleet(PrefixIndex(), TicketTable("r"))
    fleet.set_layouts([CARD])
    fleet.put(instance("store", Role.KVSTORE))
    for name, role in WORKERS.items():
        fleet.put(instance(name, role))
        fleet.apply_report(report(name), 0.0)
    return fleet


def ask(**fields: object) -> router_pb2.PlaceQuery:
    query = router_pb2.PlaceQuery(
        correlation_id=7,
        chains=[router_pb2.Chain(layout_id=LAYOUT, keys=pack(CHAIN), block_tokens=16)],
        prompt_tokens=1030,
        max_tokens=100,
        n=1,
    )
    query.context.model = "m"
    query.MergeFrom(router_pb2.PlaceQuery(**fields))
    return query


class Router:
    """A router's answers to place queries about a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        loop: Any = ManualLoop()
        self._dispatcher = QueryDispatcher(PlacementService(fleet), clock=lambda: 0.0, loop=loop)
        self._askers: dict[int, Asker] = {}

    def place(self, query: router_pb2.PlaceQuery, session: int = 1) -> router_pb2.Placement:
        asker = self._askers.get(session)
        if asker is None:
            asker = self._askers[session] = Asker(self._dispatcher, session)
        return asker.place(query)


def test_a_placement_names_workers_as_they_are_registered(fleet: Fleet) -> None:
    for name in ("d1", "d2"):
        fleet.apply_report(report(name, running=20), 0.0)
    placement = Router(fleet).place(ask())
    assert placement.correlation_id == 7
    assert placement.prefill.instance_id in {"p1", "p2"}
    assert placement.decode.instance_id in {"d1", "d2"}
    assert placement.decode.address == f"{placement.decode.instance_id}:1"
    assert placement.decode.incarnation == "1"
    assert placement.ticket
    assert placement.prediction.prefill_seconds == pytest.approx(1.03)


def test_a_prompt_goes_to_workers_with_the_tokenizer_that_made_it(fleet: Fleet) -> None:
    for name in ("p2", "d2"):
        fleet.put(instance(name, WORKERS[name], tokenizer_digest=b"new"))
    for _ in range(4):
        placement = Router(fleet).place(ask(tokenizer_digest=b"new"))
        assert placement.decode.instance_id == "d2"
        assert placement.prefill.instance_id in ("", "p2")
    with pytest.raises(BatonError) as refused:
        Router(fleet).place(ask(tokenizer_digest=b"gone"))
    assert refused.value.reason is Reason.NO_WORKER


def test_an_adapter_is_asked_of_workers_that_have_it_with_that_digest(fleet: Fleet) -> None:
    for name, digest in (("p1", b"old"), ("d1", b"old"), ("p2", b"new"), ("d2", b"new")):
        fleet.put(instance(name, WORKERS[name], adapters=frozenset({("sql", digest)})))

    def place(digest: bytes, name: str = "sql") -> router_pb2.Placement:
        query = ask(adapter_digest=digest)
        query.context.adapter = name
        return Router(fleet).place(query)

    for digest, number in ((b"old", "1"), (b"new", "2")):
        for _ in range(4):
            placement = place(digest)
            assert placement.decode.instance_id == f"d{number}"
            assert placement.prefill.instance_id in ("", f"p{number}")
    for digest, name in ((b"gone", "sql"), (b"", "sql"), (b"old", "chat")):
        with pytest.raises(BatonError) as refused:
            place(digest, name)
        assert refused.value.reason is Reason.NO_WORKER
    fleet.put(instance("d1", Role.DECODE))  # it started anew without
    with pytest.raises(BatonError):
        place(b"old")


def test_keys_in_the_query_find_what_events_stored(fleet: Fleet) -> None:
    fleet.index.add_blocks("d2", ENGINE, CHAIN)
    placement = Router(fleet).place(ask())
    assert not placement.HasField("prefill")
    assert placement.decode.instance_id == "d2"
    assert placement.prediction.cached_tokens == 1024


def test_sources_have_the_addresses_of_live_stores(fleet: Fleet) -> None:
    fleet.put(instance("far", Role.KVSTORE))
    fleet.index.add_blocks("far", DRAM, CHAIN)
    fleet.index.add_blocks("dead", DRAM, CHAIN)
    placement = Router(fleet).place(ask())
    assert [(s.store_id, s.address) for s in placement.sources if s.store_id != "store"] == [
        ("far", "far:1")
    ]


def test_a_model_that_was_never_served_is_not_found(fleet: Fleet) -> None:
    query = ask()
    query.context.model = "other"
    with pytest.raises(BatonError) as refused:
        Router(fleet).place(query)
    assert refused.value.reason is Reason.MODEL_NOT_FOUND


def test_a_model_whose_workers_left_has_no_worker(fleet: Fleet) -> None:
    for name in WORKERS:
        fleet.remove(name)
    fleet.set_layouts([])
    with pytest.raises(BatonError) as refused:
        Router(fleet).place(ask())
    assert refused.value.reason is Reason.NO_WORKER
    assert refused.value.retry_after == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt_tokens", 0), ("prompt_tokens", -1), ("max_tokens", 0), ("n", 129), ("n", -1)],
)
def test_fields_out_of_range_are_named(fleet: Fleet, field: str, value: int) -> None:
    query = ask()
    setattr(query, field, value)
    with pytest.raises(BatonError) as refused:
        Router(fleet).place(query)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.field == field


def test_keys_that_are_cut_off_are_refused(fleet: Fleet) -> None:
    query = ask()
    query.chains[0].keys += b"x"
    with pytest.raises(BatonError) as refused:
        Router(fleet).place(query)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.field == "chains"


def test_a_burst_spreads_before_any_report_shows_it(fleet: Fleet) -> None:
    """Tickets alone keep equal placements in one instant from going to one worker."""
    for name in ("d1", "d2"):
        fleet.apply_report(report(name, running=20), 0.0)
    router = Router(fleet)
    readers = [router.place(ask()).prefill.instance_id for _ in range(20)]
    assert abs(readers.count("p1") - readers.count("p2")) <= 2


def test_a_burst_spreads_over_decode_workers_too(fleet: Fleet) -> None:
    for name in ("d1", "d2"):
        fleet.apply_report(report(name, running=20), 0.0)
    router = Router(fleet)
    writers = [router.place(ask()).decode.instance_id for _ in range(40)]
    assert abs(writers.count("d1") - writers.count("d2")) <= 4
    in_flight = {w.id: (w.running - 20, 1000 - w.free_pages) for w in fleet.workers("m")}
    for name in ("d1", "d2"):
        placed = writers.count(name)
        assert in_flight[name] == (placed, placed * 71)


def test_an_acknowledgement_replaces_in_flight_load_by_the_report(fleet: Fleet) -> None:
    for name in ("d1", "d2"):
        fleet.apply_report(report(name, running=20), 0.0)
    placement = Router(fleet).place(ask())
    prefill = placement.prefill.instance_id
    assert fleet.tickets.in_flight(prefill) == InFlightLoad(1030, 1, 65)
    queue = {w.id: w.pending_prompt_tokens for w in fleet.workers("m")}
    assert queue[prefill] == 1030
    fleet.apply_report(report(prefill, pending_prompt_tokens=900, tickets=[placement.ticket]), 0.0)
    queue = {w.id: w.pending_prompt_tokens for w in fleet.workers("m")}
    assert queue[prefill] == 900


def test_a_worker_without_report_or_card_is_no_candidate_yet(fleet: Fleet) -> None:
    fleet.put(instance("c1", Role.COMBINED))
    assert "c1" not in {w.id for w in fleet.workers("m")}
    fleet.apply_report(report("c1"), 0.0)
    assert "c1" in {w.id for w in fleet.workers("m")}
    fleet.set_layouts([])
    assert fleet.workers("m") == []


def test_a_report_of_an_earlier_incarnation_is_dropped(fleet: Fleet) -> None:
    fleet.remove("d1")
    fleet.put(instance("d1", Role.DECODE, incarnation="2"))
    fleet.apply_report(report("d1"), 0.0)
    assert "d1" not in {w.id for w in fleet.workers("m")}


def test_workers_follow_staleness_draining_and_the_life_of_their_store(fleet: Fleet) -> None:
    def d1() -> object:
        return next(w for w in fleet.workers("m") if w.id == "d1")

    fleet.mark_stale("d1")
    assert d1().stale
    fleet.apply_report(report("d1"), 0.0)
    assert not d1().stale
    fleet.apply_report(report("d1", draining=True), 0.0)
    assert d1().draining
    assert d1().store_id == "store"
    fleet.remove("store")
    assert d1().store_id == ""
    fleet.put(instance("store", Role.KVSTORE))
    assert d1().store_id == "store"


def test_a_removed_worker_leaves_nothing_behind(fleet: Fleet) -> None:
    fleet.index.add_blocks("d1", ENGINE, CHAIN)
    placement = Router(fleet).place(ask())
    assert placement.decode.instance_id == "d1"
    fleet.remove("d1")
    assert fleet.tickets.in_flight("d1") == NOTHING
    assert fleet.index.match(CHAIN).runs == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.sampled_from([1, 2])),
        st.tuples(st.just("return"), st.integers(0, 30)),
        st.tuples(st.just("acknowledge"), st.sampled_from(sorted(WORKERS))),
        st.tuples(st.just("down"), st.sampled_from(["p1", "d1"])),
        st.tuples(st.just("up"), st.sampled_from(["p1", "d1"])),
    ),
    max_size=40,
)


@settings(max_examples=examples(20))
@given(steps)
def test_when_all_sessions_ended_loads_are_exactly_what_reports_say(
    history: list[tuple[str, object]],
) -> None:
    fleet = make_fleet()
    router = Router(fleet)
    issued: list[tuple[int, str]] = []
    actions: dict[str, Callable[..., None]] = {
        "place": lambda session: issued.append((session, router.place(ask(), session).ticket)),
        "return": lambda i: (
            fleet.return_tickets(issued[i][0], [issued[i][1]]) if i < len(issued) else None
        ),
        "acknowledge": lambda worker: fleet.apply_report(
            report(worker, tickets=[t for _, t in issued]), 0.0
        ),
        "down": fleet.remove,
        "up": lambda worker: (
            fleet.put(instance(worker, WORKERS[worker])),
            fleet.apply_report(report(worker), 0.0),
        ),
    }
    for kind, argument in history:
        actions[kind](argument)
    for session in (1, 2):
        fleet.end_session(session)
    assert len(fleet.tickets) == 0
    for worker in fleet.workers("m"):
        assert fleet.tickets.in_flight(worker.id) == NOTHING
        assert (worker.running, worker.pending_prompt_tokens, worker.free_pages) == (0, 0, 1000)
