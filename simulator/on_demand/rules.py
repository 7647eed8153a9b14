"""Rules by which models get their workers: production's, and that of servers that swap at once."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from baton.on_demand.turns import ModelUse, OnDemandTurns, TurnChanges, TurnPhase

POLL_SECONDS = 0.5
"""Time between two readings of the routers' metrics, as in production."""


class TurnRule(Protocol):
    """Decides which models have workers."""

    poll_seconds: float
    """Time between two decisions; 0: at each event."""

    def phase(self, model: str) -> TurnPhase:
        """Return where a model is in its turn."""

    def decide(self, uses: Mapping[str, ModelUse], now: float) -> TurnChanges:
        """Return what is to be done."""

    def started(self, model: str, now: float) -> None:
        """Take that a model's workers serve."""

    def stopped(self, model: str, now: float) -> None:
        """Take that a model's workers have ended."""

    def released(self, waiting: Sequence[str]) -> int:
        """Return the position of the next request that runs now; -1: none does.

        Args:
            waiting: the model of each request that waits, the oldest first.
        """


class ProductionTurns(OnDemandTurns):
    """Production's turns: requests for a model that is ready run at once."""

    poll_seconds = POLL_SECONDS

    def released(self, waiting: Sequence[str]) -> int:
        """Return the position of the next request that runs now; -1: none does."""
        ready = (at for at, one in enumerate(waiting) if self.phase(one) is TurnPhase.READY)
        return next(ready, -1)


class SwapAtOnce:
    """Ollama's rule (server/sched.go): each request in its order has its model loaded.

    The oldest request decides, and those behind it wait, also those for a model that is loaded. If
    there is no room, the model used longest ago is unloaded once its requests have ended.

    Args:
        models: names of all models; the first ones are loaded.
        room: most models that are loaded.
    """

    poll_seconds = 0.0

    def __init__(self, models: Sequence[str], room: int) -> None:
        self._room = room
        self._phases = dict.fromkeys(models, TurnPhase.AWAY)
        self._phases |= dict.fromkeys(models[:room], TurnPhase.READY)
        self._used: dict[str, float] = dict.fromkeys(models, 0.0)

    def phase(self, model: str) -> TurnPhase:
        """Return where a model is in its turn."""
        return self._phases[model]

    def decide(self, uses: Mapping[str, ModelUse], now: float) -> TurnChanges:
        """Return what is to be done for the oldest request."""
        phases = self._phases
        for model, use in uses.items():
            if use.running:
                self._used[model] = now
        stop = [
            model
            for model, phase in phases.items()
            if phase is TurnPhase.CLOSING and not uses[model].running
        ]
        for model in stop:
            phases[model] = TurnPhase.STOPPING
        waits = {
            model: since for model, use in uses.items() if (since := use.waiting_since) is not None
        }
        start: list[str] = []
        if waits:
            oldest = min(waits, key=lambda model: waits[model])
            there = [model for model, phase in phases.items() if phase is not TurnPhase.AWAY]
            if phases[oldest] is TurnPhase.AWAY and len(there) < self._room:
                phases[oldest] = TurnPhase.STARTING
                start.append(oldest)
            elif phases[oldest] is TurnPhase.AWAY:
                self._unload(there)
        return TurnChanges(tuple(start), stop=tuple(stop))

    def _unload(self, there: Sequence[str]) -> None:
        """Unload the model used longest ago, unless one is being unloaded."""
        ready = [model for model in there if self._phases[model] is TurnPhase.READY]
        if len(ready) == self._room:
            self._phases[min(ready, key=lambda model: self._used[model])] = TurnPhase.CLOSING

    def started(self, model: str, now: float) -> None:
        """Take that a model is loaded."""
        self._phases[model], self._used[model] = TurnPhase.READY, now

    def stopped(self, model: str, now: float) -> None:  # noqa: ARG002  # as TurnRule has it
        """Take that a model is unloaded."""
        self._phases[model] = TurnPhase.AWAY

    def released(self, waiting: Sequence[str]) -> int:
        """Return 0 if the oldest request's model is loaded; -1: it is not."""
        return 0 if waiting and self._phases[waiting[0]] is TurnPhase.READY else -1
