"""Each worker in turn."""

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice


class RoundRobin:
    """Ignores load and caches."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, view: View) -> WorkerChoice:  # noqa: ARG002  # as Baseline has it
        """Return the worker after the last one."""
        chosen = self._next % len(view.rates)
        self._next += 1
        return WorkerChoice(chosen)
