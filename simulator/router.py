"""The interface between a cluster and its router."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from simulator.model.loads import Loads
from simulator.request import Request, WorkerChoice


class Router(Protocol):
    """Places requests according to reported state. Time never decreases between calls."""

    @property
    def waiting(self) -> int:
        """Number of held requests, to be placed later by `Actions.place`."""

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        """Return the placement of a request; None: not now, or never."""

    def add_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks added to a worker's cache."""

    def remove_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks evicted from a worker's cache."""

    def report(self, loads: Loads, placed: int, now: float) -> None:
        """Record the load of all workers.

        Args:
            loads: owned by the router from now on. They include the first `placed` placements.
            placed: number of placements when the loads were measured.
            now: when the router receives them.
        """

    def end(self, request: Request, now: float) -> None:
        """Record that a request's stream has ended."""


@runtime_checkable
class ElasticRouter(Router, Protocol):
    """A router whose workers that compute prompts come and go."""

    def join(self, worker: int) -> None:
        """Record that a worker takes requests."""

    def drain(self, worker: int) -> None:
        """Record that a worker takes no new requests."""

    def leave(self, worker: int) -> None:
        """Record that a worker is gone, with its cache."""

    def lost(self, request: Request, now: float) -> None:
        """Record that a worker was lost before it computed a request's prompt."""


class Actions(Protocol):
    """Actions that a router can request from the cluster."""

    def place(self, request: Request, choice: WorkerChoice) -> None:
        """Send a request that waited in the router to its worker."""

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function of the router at a time."""
