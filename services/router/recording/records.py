"""The records of a recording: each is a call that changed the router's state, with its outcomes.

A recording contains all of them in order, from the router's start on, so that the same calls on new
objects give the same outcomes. Keys are those of KV blocks; no record contains text of a prompt.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from baton.on_demand.state import ModelTurn
from services.router.admission.controller import TicketUsage
from services.router.admission.shares.classes import AdmissionPolicy
from services.router.admission.waiting import QueueSettings, WaitingRequest
from services.router.policy.costs import Policy
from services.router.state.instances import InstanceState, LoadReport, ModelLayout
from services.router.state.rates import Bandwidths

FORMAT = 5


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """A record; its class identifies the call."""


class Opened(_Record, frozen=True, tag="open"):
    """The first record: the arguments that the objects were made with."""

    format: int
    router_id: str
    """Prefix of ticket ids."""
    policy: Policy
    bandwidths: Bandwidths
    silence_seconds: float


class InstancePut(_Record, frozen=True, tag="put"):
    """`Fleet.put`."""

    instance: InstanceState


class InstanceRemoved(_Record, frozen=True, tag="remove"):
    """`Fleet.remove`."""

    instance_id: str


class LayoutsSet(_Record, frozen=True, tag="layouts"):
    """`Fleet.set_layouts`."""

    layouts: list[ModelLayout]


class ReportApplied(_Record, frozen=True, tag="report"):
    """`Fleet.apply_report`."""

    report: LoadReport
    now: float


class WorkerStale(_Record, frozen=True, tag="stale"):
    """`Fleet.mark_stale`."""

    worker_id: str


class FleetTended(_Record, frozen=True, tag="tend"):
    """`Fleet.tend`."""

    now: float


class BlocksChanged(_Record, frozen=True, tag="blocks"):
    """`PrefixIndex.add_blocks` or `remove_blocks`."""

    added: bool
    holder: str
    tier: int
    keys: bytes
    """Packed."""
    group: int = 0


class AdmissionOpened(_Record, frozen=True, tag="admission"):
    """The second record: the arguments that the admission was made with."""

    settings: QueueSettings


class RecordedAnswer(NamedTuple):
    """The outcome of a request; if the last three fields are empty it waits."""

    number: int
    """Number of the request, as counted by the router."""
    ticket: str = ""
    prefill: str = ""
    """Id of the prefill worker; empty: none."""
    decode: str = ""
    refused: str = ""
    """Name of the error's reason."""


class RequestSubmitted(_Record, frozen=True, tag="submit"):
    """`AdmissionController.submit`."""

    waiting: WaitingRequest
    """The argument, unchanged."""
    now: float
    may_wait: bool
    answers: list[RecordedAnswer]
    """Outcomes of requests evicted for it, and then its own."""


class RequestCancelled(_Record, frozen=True, tag="cancel"):
    """`AdmissionController.cancel`."""

    number: int


class RequestRefused(_Record, frozen=True, tag="refuse"):
    """`AdmissionController.refuse`."""

    number: int
    reason: str
    """Name of the error's reason."""
    answers: list[RecordedAnswer]


class AdmissionAdvanced(_Record, frozen=True, tag="advance"):
    """`AdmissionController.advance`, while anything waits."""

    now: float
    answers: list[RecordedAnswer]


class AdmissionDrained(_Record, frozen=True, tag="drain"):
    """`AdmissionController.drain`."""

    reason: str
    """Name of the error's reason."""
    answers: list[RecordedAnswer]


class ClassesSet(_Record, frozen=True, tag="classes"):
    """`AdmissionController.policy`."""

    policy: AdmissionPolicy


class TurnsSet(_Record, frozen=True, tag="turns"):
    """`AdmissionController.set_turns`."""

    turns: dict[str, ModelTurn]


class TicketsReturned(_Record, frozen=True, tag="return"):
    """`AdmissionController.return_tickets`."""

    session: int
    tickets: list[str]
    usage: dict[str, TicketUsage]


class SessionEnded(_Record, frozen=True, tag="session"):
    """`AdmissionController.end_session`."""

    session: int


Record = (
    Opened
    | InstancePut
    | InstanceRemoved
    | LayoutsSet
    | ReportApplied
    | WorkerStale
    | FleetTended
    | BlocksChanged
    | AdmissionOpened
    | RequestSubmitted
    | RequestCancelled
    | RequestRefused
    | AdmissionAdvanced
    | AdmissionDrained
    | ClassesSet
    | TurnsSet
    | TicketsReturned
    | SessionEnded
)

Write = Callable[[Record], None]
"""Takes a record; it must not fail."""
