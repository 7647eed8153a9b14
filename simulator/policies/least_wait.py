"""Chooses the worker that would start first."""

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice


class LeastWait:
    """Considers only load. With a shared unbounded cache this is ideal FIFO."""

    def choose(self, request: Request, view: View) -> WorkerChoice:  # noqa: ARG002  # as Baseline has it
        """Return the worker with the least work."""
        return WorkerChoice(view.lowest(view.wait_blocks))
