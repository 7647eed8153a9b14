"""Chooses the worker with the longest prefix of the prompt, regardless of load."""

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

_FAR_MORE = 1e6
"""Seconds of waiting that a block is worth: arbitrarily many."""


class LongestPrefix:
    """Considers caches first, and load among equals."""

    def choose(self, request: Request, view: View) -> WorkerChoice:  # noqa: ARG002  # as Baseline has it
        """Return the worker with the longest prefix."""
        return WorkerChoice(view.lowest(view.wait - _FAR_MORE * view.depths()))
