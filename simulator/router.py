"""What the cluster tells a router, and asks it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.model.loads import Loads
from simulator.request import Request, WorkerChoice


class Router(Protocol):
    """Places requests on what it was told. Time never goes back from one call to the next."""

    @property
    def waiting(self) -> int:
        """Number of requests that it holds, to place them later by `Actions.place`."""

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        """Return where a request goes; None: not now, or never."""

    def add_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Note that a worker's cache has more blocks."""

    def remove_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Note that a worker's cache has evicted blocks."""

    def report(self, loads: Loads, placed: int, now: float) -> None:
        """Note the load of all workers.

        Args:
            loads: the router's own now. They contain the first `placed` placements.
            placed: the number of placements when the loads were measured.
            now: when the router hears of it.
        """

    def end(self, request: Request, now: float) -> None:
        """Note that a request's stream has ended."""


class Actions(Protocol):
    """What a router can have done in the cluster beside answering."""

    def place(self, request: Request, choice: WorkerChoice) -> None:
        """Send a request that waited in the router where it goes."""

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function of the router at a time."""
