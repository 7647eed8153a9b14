"""A fleet lists what lives, and does what is due with time when it is told the time."""

import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.prefix_index.holders import ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.stream_targets import StreamPlacement
from services.router.state.tickets import NOTHING, InFlightLoad, TicketTable
from tests.support.examples import examples

LAYOUT = b"L" * 16
SILENCE = 2.0
EXPIRY = 10.0


def make_fleet(tickets: TicketTable | None = None) -> Fleet:
    tickets = TicketTable("r", expiry=EXPIRY) if tickets is None else tickets
    fleet = Fleet(PrefixIndex(), tickets, silence_seconds=SILENCE)
    fleet.set_layouts([ModelLayout(model, LAYOUT, 16, 1000) for model in "mn"])
    return fleet


def worker(name: str, model: str = "m", store: str = "") -> InstanceState:
    return InstanceState(name, Role.COMBINED, model=model, layout_id=LAYOUT, store_id=store)


def stale(fleet: Fleet) -> list[str]:
    return [one.id for one in fleet.workers("m") if one.stale]


def test_a_worker_that_stops_reporting_is_stale_until_it_reports_again() -> None:
    fleet = make_fleet()
    for name in "ab":
        fleet.put(worker(name))
        fleet.apply_report(LoadReport(name), 0.0)
    for now in (0.0, 1.0):
        assert fleet.tend(now).silent == ()
    fleet.apply_report(LoadReport("b"), 1.5)
    assert fleet.tend(2.0).silent == ("a",)
    assert stale(fleet) == ["a"]
    assert fleet.tend(3.0).silent == (), "it is told once"
    assert fleet.tend(3.5).silent == ("b",)
    fleet.apply_report(LoadReport("a"), 3.75)
    assert stale(fleet) == ["b"]
    assert fleet.tend(5.5).silent == ()
    assert fleet.tend(5.75).silent == ("a",)


def test_a_router_that_stood_still_does_not_take_its_own_silence_for_the_workers() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a"), 0.0)
    fleet.tend(0.0)
    assert fleet.tend(60.0).silent == ()
    fleet.apply_report(LoadReport("a"), 60.1)
    assert fleet.tend(60.5).silent == ()
    assert fleet.tend(61.5).silent == ()
    assert fleet.tend(62.5).silent == ("a",)


def test_a_worker_whose_stream_broke_or_that_left_is_not_told_silent() -> None:
    fleet = make_fleet()
    for name in "ab":
        fleet.put(worker(name))
        fleet.apply_report(LoadReport(name), 0.0)
    fleet.mark_stale("a")
    fleet.remove("b")
    fleet.tend(1.0)
    assert fleet.tend(2.5).silent == ()
    assert stale(fleet) == ["a"]


def test_load_that_no_report_acknowledges_ends() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a"), 0.0)
    fleet.issue(1, 0.0, {"a": InFlightLoad(100, 1, 7)})
    assert fleet.tend(EXPIRY - 0.1).expired == frozenset()
    assert [one.pending_prompt_tokens for one in fleet.workers("m")] == [100]
    assert fleet.tend(EXPIRY).expired == {"a"}
    assert [one.pending_prompt_tokens for one in fleet.workers("m")] == [0]
    assert fleet.tickets.in_flight("a") == NOTHING


def itl(fleet: Fleet) -> tuple[float, float]:
    """Return the limit of the one worker, as it is and as its row in the columns has it."""
    (one,) = fleet.workers("m")
    return one.itl_limit(0.05), fleet.columns("m").itl_limits(0.05).item()


def test_streams_keep_the_strictest_target_of_their_classes_until_their_tickets_end() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a"), 0.0)
    loads = {"a": InFlightLoad(100, 1, 7)}
    tickets = []
    # The last class says nothing: its streams have the policy's.
    for target, limit in ((0.2, 0.2), (0.1, 0.1), (0.0, 0.05), (0.02, 0.02)):
        tickets.append(fleet.issue(1, 0.0, loads, StreamPlacement("a", 1, target)))
        assert itl(fleet) == (limit, limit)
    fleet.apply_report(LoadReport("a", running=4, tickets=tickets), 1.0)
    assert itl(fleet) == (0.02, 0.02), "load that is acknowledged is no stream that ended"
    # A report of fewer streams comes after the ticket, or before it.
    for ended, running, limit in ((3, 3, 0.05), (2, 2, 0.1), (1, 1, 0.2), (0, 0, 0.05)):
        fleet.return_tickets(1, [tickets[ended]])
        fleet.apply_report(LoadReport("a", running=running), 2.0)
        assert itl(fleet) == (limit, limit)


def test_streams_of_other_routers_are_to_keep_the_policys_target() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a", running=1), 0.0)
    ticket = fleet.issue(1, 0.0, {"a": InFlightLoad(0, 2, 0)}, StreamPlacement("a", 2, 0.2))
    assert itl(fleet) == (0.05, 0.05)
    fleet.apply_report(LoadReport("a", running=2, tickets=[ticket]), 1.0)
    assert itl(fleet) == (0.2, 0.2)


def test_streams_of_a_worker_that_left_are_not_those_of_the_one_that_comes_back() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a"), 0.0)
    old = fleet.issue(1, 0.0, {}, StreamPlacement("a", 1, 0.01))
    fleet.remove("a")
    fleet.put(worker("a"))
    fleet.apply_report(LoadReport("a"), 1.0)
    assert itl(fleet) == (0.05, 0.05)
    fleet.issue(1, 1.0, {"a": InFlightLoad(0, 1, 0)}, StreamPlacement("a", 1, 0.1))
    fleet.return_tickets(1, [old])
    assert itl(fleet) == (0.1, 0.1)


ticket_loads = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(InFlightLoad, st.integers(0, 99), st.integers(1, 3), st.integers(0, 9)),
    max_size=2,
)


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.one_of(
            st.tuples(ticket_loads, st.sampled_from([0.0, 0.02, 0.2])),
            st.integers(0, 9),
            st.sampled_from("abc"),
        ),
        max_size=20,
    )
)
def test_rows_are_those_of_open_tickets_also_where_there_are_too_many(
    events: list[tuple[dict[str, InFlightLoad], float] | int | str],
) -> None:
    fleet = make_fleet(TicketTable("r", limit=3))
    for name in "abc":
        fleet.put(worker(name))
        fleet.apply_report(LoadReport(name, free_pages=50, total_pages=99), 0.0)
    open_tickets: list[tuple[str, dict[str, InFlightLoad], StreamPlacement | None]] = []
    for event in events:
        match event:
            case (dict(loads), target):
                streams = StreamPlacement(min(loads), 1, target) if loads else None
                ticket = fleet.issue(1, 0.0, loads, streams)
                open_tickets = [*open_tickets, (ticket, dict(loads), streams)][-3:]
            case int(which):
                ended = open_tickets[which : which + 1]
                del open_tickets[which : which + 1]
                names = [ticket for ticket, _, _ in ended]
                fleet.return_tickets(1, names)
            case str(name):
                names = [ticket for ticket, _, _ in open_tickets]
                fleet.apply_report(
                    LoadReport(name, free_pages=50, total_pages=99, tickets=names), 0
                )
                for _, loads, _ in open_tickets:
                    loads.pop(name, None)
        columns = fleet.columns("m")
        for one in columns.workers:
            load = sum((loads.get(one.id, NOTHING) for _, loads, _ in open_tickets), NOTHING)
            here = [each for _, _, each in open_tickets if each and each.worker_id == one.id]
            targets = [each.itl_target for each in here if each.itl_target]
            assert one.running == load.sequences
            assert one.pending_prompt_tokens == load.prompt_tokens
            assert one.itl_target == min(targets, default=math.inf)
            assert columns.free_pages[columns.rows[one.id]] == 50 - load.pages


def test_blocks_of_a_holder_that_left_go_piece_by_piece() -> None:
    fleet = make_fleet()
    fleet.put(worker("a"))
    fleet.index.add_blocks("a", ENGINE, [number.to_bytes(16, "big") for number in range(10_000)])
    fleet.remove("a")
    sizes = [len(fleet.index)]
    while fleet.tend(0.0).more:
        sizes.append(len(fleet.index))
        assert len(sizes) < 10
    assert len(fleet.index) == 0
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.one_of(
                st.none(), st.builds(lambda *of: of, st.sampled_from("mn"), st.sampled_from("xy"))
            ),
        ),
        max_size=30,
    )
)
def test_workers_are_listed_in_order_under_their_model_with_stores_that_live(
    history: list[tuple[str, tuple[str, str] | None]],
) -> None:
    fleet, live = make_fleet(), {}
    fleet.put(InstanceState("x", Role.KVSTORE))
    for name, registered in history:
        if registered is None:
            fleet.remove(name)
            live.pop(name, None)
        else:
            fleet.put(worker(name, *registered))
            fleet.apply_report(LoadReport(name), 0.0)
            live[name] = registered
    for store in ("x", "y"):
        for model in "mn":
            listed = [(one.id, one.store_id) for one in fleet.workers(model)]
            assert listed == [
                (name, beside if beside == store else "")
                for name, (of, beside) in sorted(live.items())
                if of == model
            ]
        fleet.remove("x")
        fleet.put(InstanceState("y", Role.KVSTORE))
    assert fleet.role_counts() == Counter({Role.COMBINED: len(live), Role.KVSTORE: 1})
