"""The router's admission, with recording of its calls and outcomes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from baton.errors import BatonError
from baton.on_demand.state import ModelTurn
from services.router.admission.controller import AdmissionController, AdmittedRequest, TicketUsage
from services.router.admission.shares.classes import AdmissionPolicy
from services.router.admission.waiting import QueueSettings, WaitingRequest
from services.router.policy.placement_service import PlacementService
from services.router.recording.records import (
    AdmissionAdvanced,
    AdmissionDrained,
    AdmissionOpened,
    ClassesSet,
    RecordedAnswer,
    RequestCancelled,
    RequestRefused,
    RequestSubmitted,
    SessionEnded,
    TicketsReturned,
    TurnsSet,
    Write,
)


def answer(number: int, outcome: AdmittedRequest | BatonError | None) -> RecordedAnswer:
    """Return the recorded form of an outcome; None: the request waits."""
    if outcome is None:
        return RecordedAnswer(number)
    if isinstance(outcome, BatonError):
        return RecordedAnswer(number, refused=outcome.reason.name)
    ticket, decision, _ = outcome.placed
    prefill = decision.prefill_worker
    return RecordedAnswer(
        number, ticket, prefill.id if prefill is not None else "", decision.decode_worker.id
    )


class RecordedAdmission(AdmissionController):
    """An admission controller that records each call and the outcomes that it produced.

    Args:
        write: takes records.
        placements: decides where requests go.
        on_answer: as for `AdmissionController`.
        settings: of each model's queue.
    """

    def __init__(
        self,
        write: Write,
        placements: PlacementService,
        on_answer: Callable[[WaitingRequest, AdmittedRequest | BatonError], None],
        settings: QueueSettings,
    ) -> None:
        write(AdmissionOpened(settings))
        super().__init__(placements, self._answered, settings)
        self._tell = on_answer
        self._write = write
        self._answers: list[RecordedAnswer] = []
        """Outcomes of the current call. Receivers call nothing here before it has ended."""
        self._drains = False

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of priority classes; a new one applies from the next request on."""
        return self._policy

    @policy.setter
    def policy(self, policy: AdmissionPolicy) -> None:
        self._write(ClassesSet(policy))
        AdmissionController.policy.fset(self, policy)  # type: ignore[attr-defined]  # a property

    def submit(
        self, waiting: WaitingRequest, now: float, *, may_wait: bool = True
    ) -> AdmittedRequest | None:
        """Place a request immediately, or enqueue it and return None."""
        as_given = dataclasses.replace(waiting)
        outcome: AdmittedRequest | BatonError | None = None
        try:
            outcome = super().submit(waiting, now, may_wait=may_wait)
        except BatonError as error:
            outcome = error
            raise
        finally:
            answers = [*self._take_answers(), answer(waiting.number, outcome)]
            self._write(RequestSubmitted(as_given, now, may_wait, answers))
        return outcome

    def set_turns(self, turns: Mapping[str, ModelTurn]) -> None:
        """Take the states of all models whose workers start on demand."""
        self._write(TurnsSet(dict(turns)))
        super().set_turns(turns)

    def cancel(self, number: int) -> bool:
        """Remove a request without an outcome; return whether it was waiting."""
        self._write(RequestCancelled(number))
        return super().cancel(number)

    def refuse(self, number: int, error: BatonError) -> None:
        """Remove a request and deliver an error as its outcome."""
        super().refuse(number, error)
        if not self._drains:
            self._write(RequestRefused(number, error.reason.name, self._take_answers()))

    def drain(self, error: BatonError) -> None:
        """Fail all waiting requests with an error, and later ones that would have to wait."""
        self._drains = True
        try:
            super().drain(error)
        finally:
            self._drains = False
        self._write(AdmissionDrained(error.reason.name, self._take_answers()))

    def advance(self, now: float) -> None:
        """Place requests whose turn has come, and expire those that waited for too long."""
        if not len(self):
            return
        super().advance(now)
        self._write(AdmissionAdvanced(now, self._take_answers()))

    def return_tickets(
        self, session: int, tickets: Sequence[str], usage: Mapping[str, TicketUsage]
    ) -> None:
        """End tickets of a session."""
        self._write(TicketsReturned(session, list(tickets), dict(usage)))
        super().return_tickets(session, tickets, usage)

    def end_session(self, session: int) -> list[WaitingRequest]:
        """Remove what a session waits for, without outcomes, and end its tickets."""
        self._write(SessionEnded(session))
        return super().end_session(session)

    def _answered(self, waiting: WaitingRequest, outcome: AdmittedRequest | BatonError) -> None:
        self._answers.append(answer(waiting.number, outcome))
        self._tell(waiting, outcome)

    def _take_answers(self) -> list[RecordedAnswer]:
        answers, self._answers = self._answers, []
        return answers
