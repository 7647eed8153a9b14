"""For a class, the work of lower classes at a worker gives way: it is no load and takes no room."""

from services.router.policy.placement_service import PlacementRequest, PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import (
    LOWEST,
    InstanceState,
    LoadReport,
    ModelLayout,
    ReportedClassLoad,
    Role,
)
from services.router.state.tickets import InFlightLoad, TicketTable

INTERACTIVE, BATCH = 1, 2
RATE = 1000.0


def fleet() -> Fleet:
    made = Fleet(PrefixIndex(), TicketTable("r"))
    made.put(InstanceState("w", Role.COMBINED, "1", "w:1", model="m", layout_id=b"l"))
    made.set_layouts([ModelLayout("m", b"l", 16, 1024)])
    return made


def report(*classes: ReportedClassLoad, tickets: tuple[str, ...] = (), free: int = 4) -> LoadReport:
    return LoadReport(
        "w",
        "1",
        sum(one.running for one in classes),
        sum(one.waiting for one in classes),
        sum(one.pending_prompt_tokens for one in classes),
        free,
        100,
        RATE,
        0.02,
        tickets=tickets,
        ticket_sequences=[1] * len(tickets),
        max_running=16,
        max_sequences=32,
        classes=classes,
    )


def test_lower_classes_are_left_out_and_the_others_count() -> None:
    made = fleet()
    interactive = ReportedClassLoad(INTERACTIVE, 2, 0, 100, 10)
    batch = ReportedClassLoad(BATCH, 14, 3, 4000, 80)
    made.apply_report(report(interactive, batch), 0.0)
    (own,) = made.columns("m", INTERACTIVE).workers
    (all_of_it,) = made.columns("m", BATCH).workers
    assert made.worker("w") is all_of_it
    assert (all_of_it.pending_prompt_tokens, all_of_it.waiting, all_of_it.free_pages) == (
        4100,
        3,
        4,
    )
    assert (own.pending_prompt_tokens, own.waiting, own.free_pages) == (100, 0, 84)
    assert (own.room.at_once, own.room.pages) == (14, 84)
    assert all_of_it.room.at_once == 16 - 19
    assert own.running == all_of_it.running == 16, "they take part in steps"
    service = PlacementService(made)
    assert service.queue_seconds("m", 0.0, INTERACTIVE)["w"] < 0.2
    assert service.queue_seconds("m", 0.0)["w"] > 4.0
    assert service.any_room("m", {}, INTERACTIVE)
    assert not service.any_room("m", {})


def test_shared_pages_are_no_more_than_there_are() -> None:
    made = fleet()
    made.apply_report(report(ReportedClassLoad(BATCH, 14, 0, 0, 900)), 0.0)
    (own,) = made.columns("m", INTERACTIVE).workers
    assert own.free_pages == 100


def test_work_on_its_way_counts_for_its_class_and_lower_ones() -> None:
    made = fleet()
    made.apply_report(report(free=100), 0.0)
    load = {"w": InFlightLoad(500, 1, 20)}
    ticket = made.issue(1, 0.0, load, rank=BATCH)
    own, lower = made.columns("m", INTERACTIVE), made.columns("m")
    assert [one.workers[0].pending_prompt_tokens for one in (own, lower)] == [0, 500]
    made.issue(1, 0.0, load, rank=INTERACTIVE)
    own, lower = made.columns("m", INTERACTIVE), made.columns("m")
    assert [one.workers[0].pending_prompt_tokens for one in (own, lower)] == [500, 1000]
    # Once reported and ended, a line leaves room for its own class only.
    running = ReportedClassLoad(INTERACTIVE, 1), ReportedClassLoad(BATCH, 1)
    made.apply_report(report(*running, tickets=(ticket,)), 0.1)
    made.return_tickets(1, [ticket])
    rooms = [made.columns("m", rank).workers[0].room.at_once for rank in (INTERACTIVE, LOWEST)]
    assert rooms == [16 - 2, 16 - 2], "one that runs, and one on its way"


def test_a_request_is_placed_where_lower_classes_have_all_places() -> None:
    made = fleet()
    made.apply_report(report(ReportedClassLoad(BATCH, 16, 16, 9000, 96)), 0.0)
    service = PlacementService(made)
    request = PlacementRequest("m", 100, 10)
    assert service.plan(request, 0.0, rank=INTERACTIVE).has_room
    assert service.plan(request, 0.0, rank=INTERACTIVE).queue_seconds == 0.0
    assert not service.plan(request, 0.0, rank=BATCH).has_room
