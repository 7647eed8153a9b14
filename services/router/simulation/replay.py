"""A recorded run again: the same calls on new objects, whose placements must be the same."""

from collections.abc import Iterable
from dataclasses import dataclass

from baton.errors import BatonError
from baton.kv.keys import KEY_BYTES
from services.router.placement.service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.recording.recorded import outcome
from services.router.recording.records import (
    BlocksChanged,
    FleetTended,
    InstancePut,
    InstanceRemoved,
    LayoutsSet,
    Opened,
    PlacementOutcome,
    Record,
    ReportApplied,
    RequestPlaced,
    SessionEnded,
    TicketsReturned,
    WorkerStale,
)
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketTable


@dataclass(frozen=True, slots=True)
class Difference:
    """A placement that came out otherwise."""

    placement: int
    """Its number, from 1."""
    recorded: PlacementOutcome
    replayed: PlacementOutcome


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, up to the first difference."""

    records: int
    placements: int
    difference: Difference | None


def replay(records: Iterable[Record]) -> Replayed:
    """Call all that was recorded; stop at the first placement that is another.

    Args:
        records: as they were written; the first is `Opened`.
    """
    done = placements = 0
    for record in records:
        done += 1
        if isinstance(record, Opened):
            fleet = Fleet(
                PrefixIndex(),
                TicketTable(record.router_id),
                record.bandwidths,
                record.silence_seconds,
            )
            service = PlacementService(fleet, record.policy)
        elif isinstance(record, RequestPlaced):
            placements += 1
            again = _place(service, record)
            if again != record.outcome:
                return Replayed(done, placements, Difference(placements, record.outcome, again))
        else:
            _apply(fleet, service, record)
    return Replayed(done, placements, None)


def _place(service: PlacementService, record: RequestPlaced) -> PlacementOutcome:
    try:
        plan = service.plan(record.request, record.turns)
        return outcome(service.commit(plan, record.session, record.now))
    except BatonError as error:
        return PlacementOutcome(refused=error.reason.name)


def _apply(fleet: Fleet, service: PlacementService, record: Record) -> None:
    match record:
        case ReportApplied():
            fleet.apply_report(record.report, record.now)
        case BlocksChanged():
            packed = record.keys
            keys = [packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES)]
            change = fleet.index.add_blocks if record.added else fleet.index.remove_blocks
            change(record.holder, record.tier, keys)
        case TicketsReturned():
            service.return_tickets(record.session, record.tickets)
        case FleetTended():
            fleet.tend(record.now)
        case SessionEnded():
            service.end_session(record.session)
        case InstancePut():
            fleet.put(record.instance)
        case InstanceRemoved():
            fleet.remove(record.instance_id)
        case LayoutsSet():
            fleet.set_layouts(record.layouts)
        case WorkerStale():
            fleet.mark_stale(record.worker_id)
