"""A fleet lists what lives, and does what is due with time when it is told the time."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.prefix_index.holders import ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import NOTHING, InFlightLoad, TicketTable

LAYOUT = b"L" * 16
SILENCE = 2.0
EXPIRY = 10.0


def make_fleet() -> Fleet:
    fleet = Fleet(PrefixIndex(), TicketTable("r", expiry=EXPIRY), silence_seconds=SILENCE)
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
    fleet.tickets.issue(1, 0.0, {"a": InFlightLoad(100, 1, 7)})
    fleet.load_changed(["a"])
    assert fleet.tend(EXPIRY - 0.1).expired == frozenset()
    assert [one.pending_prompt_tokens for one in fleet.workers("m")] == [100]
    assert fleet.tend(EXPIRY).expired == {"a"}
    assert [one.pending_prompt_tokens for one in fleet.workers("m")] == [0]
    assert fleet.tickets.in_flight("a") == NOTHING


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


@settings(max_examples=100)
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
