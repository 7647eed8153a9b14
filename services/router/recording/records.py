"""The records of a recording: each is a call that changed the router's state, or a placement.

A recording is all of them in order, from the router's start on, so that the same calls on new
objects give the same placements. Keys are those of KV blocks; no record holds text of a prompt.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from services.router.placement.service import PlacementRequest
from services.router.policy.costs import Policy, Turn
from services.router.state.instances import InstanceState, LoadReport, ModelLayout
from services.router.state.rates import Bandwidths

FORMAT = 1


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """A record; its class tells what was called."""


class Opened(_Record, frozen=True, tag="open"):
    """The first record: what the objects were made with."""

    format: int
    router_id: str
    """That ticket ids begin with."""
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


class PlacementOutcome(NamedTuple):
    """What a placement was answered with."""

    ticket: str = ""
    prefill: str = ""
    """Id of the prefill worker; empty: none."""
    decode: str = ""
    refused: str = ""
    """The reason's name; then the others are empty."""


class RequestPlaced(_Record, frozen=True, tag="place"):
    """`PlacementService.plan` and `commit`; where the first refused, session and time are 0."""

    request: PlacementRequest
    session: int
    now: float
    outcome: PlacementOutcome
    turns: dict[str, Turn] = {}
    """That it was planned with."""


class TicketsReturned(_Record, frozen=True, tag="return"):
    """`PlacementService.return_tickets`."""

    session: int
    tickets: list[str]


class SessionEnded(_Record, frozen=True, tag="session"):
    """`PlacementService.end_session`."""

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
    | RequestPlaced
    | TicketsReturned
    | SessionEnded
)

Write = Callable[[Record], None]
"""Takes a record; it must not fail."""
