"""The worker that would begin first."""

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice


class LeastWait:
    """Looks at load alone. Over one cache that keeps everything it is FIFO at its best."""

    def choose(self, request: Request, view: View) -> WorkerChoice:  # noqa: ARG002  # as Baseline has it
        """Return the worker with the least work."""
        return WorkerChoice(view.lowest(view.wait_blocks))
