"""Replays a recorded run: the same calls on new objects must return the same results."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from baton.errors import BatonError, Reason
from baton.kv.keys import KEY_BYTES
from services.router.admission.controller import AdmissionController, AdmittedRequest
from services.router.admission.waiting import DEFAULT_SETTINGS, QueueSettings, WaitingRequest
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.index import PrefixIndex
from services.router.recording.recorded_admission import answer
from services.router.recording.records import (
    AdmissionAdvanced,
    AdmissionDrained,
    AdmissionOpened,
    BlocksChanged,
    ClassesSet,
    FleetTended,
    InstancePut,
    InstanceRemoved,
    LayoutsSet,
    Opened,
    Record,
    RecordedAnswer,
    ReportApplied,
    RequestCancelled,
    RequestRefused,
    RequestSubmitted,
    SessionEnded,
    TicketsReturned,
    TurnsSet,
    WorkerStale,
)
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketTable


@dataclass(frozen=True, slots=True)
class Difference:
    """A result that differs from the recorded one; None: it is missing."""

    recorded: RecordedAnswer | None
    replayed: RecordedAnswer | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay, up to the first difference."""

    records: int
    answers: int
    difference: Difference | None


def replay(records: Iterable[Record]) -> Replayed:
    """Repeat all recorded calls; stop at the first result that differs.

    Args:
        records: in recorded order; the first is `Opened`.
    """
    done = answers = 0
    for record in records:
        done += 1
        if isinstance(record, Opened):
            router = _Router(record)
            continue
        again = router.call(record)
        recorded: list[RecordedAnswer] = getattr(record, "answers", [])
        for at in range(max(len(recorded), len(again))):
            answers += 1
            pair = [one[at] if at < len(one) else None for one in (recorded, again)]
            if pair[0] != pair[1]:
                return Replayed(done, answers, Difference(*pair))
    return Replayed(done, answers, None)


class _Router:
    """New objects that replace those of the recorded router."""

    def __init__(self, opened: Opened) -> None:
        self._fleet = Fleet(
            PrefixIndex(),
            TicketTable(opened.router_id),
            opened.bandwidths,
            opened.silence_seconds,
        )
        self._placements = PlacementService(self._fleet, opened.policy)
        self._answers: list[RecordedAnswer] = []
        self._admission = self._admit(DEFAULT_SETTINGS)

    def call(self, record: Record) -> list[RecordedAnswer]:
        """Repeat a recorded call; return the results and their receivers."""
        admission, self._answers = self._admission, []
        match record:
            case RequestSubmitted():
                self._submit(record)
            case AdmissionAdvanced():
                admission.advance(record.now)
            case TicketsReturned():
                admission.return_tickets(record.session, record.tickets, record.usage)
            case RequestCancelled():
                admission.cancel(record.number)
            case SessionEnded():
                admission.end_session(record.session)
            case RequestRefused():
                admission.refuse(record.number, BatonError(Reason[record.reason], "as recorded"))
            case AdmissionDrained():
                admission.drain(BatonError(Reason[record.reason], "as recorded"))
            case ClassesSet():
                admission.policy = record.policy
            case TurnsSet():
                admission.set_turns(record.turns)
            case AdmissionOpened():
                self._admission = self._admit(record.settings)
            case _:
                _tell(self._fleet, record)
        return self._answers

    def _admit(self, settings: QueueSettings) -> AdmissionController:
        return AdmissionController(self._placements, self._answer, settings)

    def _answer(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        self._answers.append(answer(waiting.number, outcome))

    def _submit(self, record: RequestSubmitted) -> None:
        waiting = dataclasses.replace(record.waiting)
        outcome: AdmittedRequest | BatonError | None
        try:
            outcome = self._admission.submit(waiting, record.now, may_wait=record.may_wait)
        except BatonError as error:
            outcome = error
        self._answers.append(answer(waiting.number, outcome))


def _tell(fleet: Fleet, record: Record) -> None:
    """Pass a recorded input to the fleet."""
    match record:
        case ReportApplied():
            fleet.apply_report(record.report, record.now)
        case BlocksChanged():
            packed = record.keys
            keys = [packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES)]
            change = fleet.index.add_blocks if record.added else fleet.index.remove_blocks
            change(record.holder, record.tier, keys, record.group)
        case FleetTended():
            fleet.tend(record.now)
        case InstancePut():
            fleet.put(record.instance)
        case InstanceRemoved():
            fleet.remove(record.instance_id)
        case LayoutsSet():
            fleet.set_layouts(record.layouts)
        case WorkerStale():
            fleet.mark_stale(record.worker_id)
