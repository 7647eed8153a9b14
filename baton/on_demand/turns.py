"""Turns of models that have room for fewer than all of their workers."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from baton.on_demand.state import ModelState, ModelTurn

MIN_STAY_SECONDS = 30.0
PATIENCE_STAYS = 2.0
"""After so many minimum stays, a request that waits ends the turn of a model in use."""
REST_SECONDS = 30.0
"""A model that did not start is not started again for so long."""
FIRST_GUESS_SECONDS = 10.0
"""Predicted start-up of a model that has never been started."""


class TurnPhase(Enum):
    """Where a model is in its turn."""

    AWAY = auto()
    """It has no workers."""
    STARTING = auto()
    READY = auto()
    CLOSING = auto()
    """Its workers get no new requests, and finish those that they have."""
    STOPPING = auto()
    """Its workers drain."""


_STATES = {
    TurnPhase.AWAY: ModelState.ON_DEMAND,
    TurnPhase.STARTING: ModelState.STARTING,
    TurnPhase.READY: ModelState.READY,
    TurnPhase.CLOSING: ModelState.LEAVING,
    TurnPhase.STOPPING: ModelState.LEAVING,
}


class ModelUse(NamedTuple):
    """What is known of the requests for a model at one moment."""

    waiting_since: float | None = None
    """When the oldest request that waits for it arrived; None: none waits."""
    running: bool = False
    """Whether its workers have requests."""


NOT_USED = ModelUse()


class TurnChanges(NamedTuple):
    """What is to be done, each as names of models."""

    start: tuple[str, ...] = ()
    """Start their workers; then report `started`, or `failed`."""
    close: tuple[str, ...] = ()
    """Send their workers no new requests."""
    reopen: tuple[str, ...] = ()
    """Send their workers requests again: what waited for their room is gone."""
    stop: tuple[str, ...] = ()
    """Drain their workers; then report `stopped`."""


@dataclass(slots=True)
class _Turn:
    phase: TurnPhase = TurnPhase.AWAY
    began: float = 0.0
    """When its phase began."""
    used_at: float = 0.0
    """When a request for it was last seen."""
    start_seconds: float = FIRST_GUESS_SECONDS
    """What its last start took."""
    not_before: float = 0.0
    """It failed to start: when it may be started again."""


class OnDemandTurns:
    """Decides which models' workers are up. Owned by one task; time is an argument.

    A model that is away gets a turn once a request waits for it: the oldest request first, whatever
    its model. If there is no room, the model that was used longest ago gives its room, once its
    turn has lasted `min_stay` seconds and it has no requests. A model in use stays until a request
    for another has waited for PATIENCE_STAYS minimum stays; then new requests for it wait, and it
    finishes what it has. A turn serves all that waits, so that one queue never costs two turns.

    Args:
        room: most models that have workers at the same time, starting and draining ones included.
        min_stay: seconds for which a model stays at least.
    """

    def __init__(self, room: int, min_stay: float = MIN_STAY_SECONDS) -> None:
        self._room = room
        self._min_stay = min_stay
        self._turns: dict[str, _Turn] = {}
        self._queued: list[str] = []
        """Models that waited for a turn when it was last decided, in their order."""

    def add(self, model: str, phase: TurnPhase, now: float) -> None:
        """Take one more model."""
        self._turns[model] = _Turn(phase, now, now)

    def remove(self, model: str) -> None:
        """Forget a model."""
        del self._turns[model]

    def phase(self, model: str) -> TurnPhase:
        """Return where a model is in its turn."""
        return self._turns[model].phase

    def leaving(self, model: str, now: float) -> None:
        """Take that a model's workers drain for another reason than its turn's end."""
        _set(self._turns[model], TurnPhase.STOPPING, now)

    def starting(self, model: str, now: float) -> None:
        """Take that a model's workers are started without a request for it."""
        _set(self._turns[model], TurnPhase.STARTING, now)

    def started(self, model: str, now: float) -> None:
        """Take that a model's workers serve."""
        turn = self._turns[model]
        turn.start_seconds = now - turn.began
        _set(turn, TurnPhase.READY, now)

    def failed(self, model: str, now: float) -> None:
        """Take that a model's workers did not start, and have ended; it rests for a while."""
        turn = self._turns[model]
        turn.not_before = now + REST_SECONDS
        _set(turn, TurnPhase.AWAY, now)

    def stopped(self, model: str, now: float) -> None:
        """Take that a model's workers have ended."""
        _set(self._turns[model], TurnPhase.AWAY, now)

    def decide(self, uses: Mapping[str, ModelUse], now: float) -> TurnChanges:
        """Return what is to be done now; the phases are as if it was done.

        Args:
            uses: of each model; those without requests may be left out.
            now: a monotonic clock, in seconds.
        """
        turns = self._turns
        for model, turn in turns.items():
            use = uses.get(model, NOT_USED)
            if use.running or use.waiting_since is not None:
                turn.used_at = now
        stop = self._take(self._in(TurnPhase.CLOSING, uses, running=False), TurnPhase.STOPPING, now)
        queue = self._queue(uses, now)
        free = self._room - sum(turn.phase is not TurnPhase.AWAY for turn in turns.values())
        start = self._take(queue[: max(0, free)], TurnPhase.STARTING, now)
        short = self._queued = queue[max(0, free) :]
        closing = self._in(TurnPhase.CLOSING, uses)
        leaving = len(closing) + len(self._in(TurnPhase.STOPPING, uses))
        close: list[str] = []
        for model in short[leaving:]:
            since = uses[model].waiting_since
            victim = self._victim(uses, now, now if since is None else since)
            if victim is None:
                break
            close += self._take([victim], TurnPhase.CLOSING, now)
        kept = max(0, leaving - len(short))
        reopened = sorted(closing, key=lambda one: -turns[one].used_at)[:kept]
        for model in reopened:
            turns[model].phase = TurnPhase.READY
        return TurnChanges(start, tuple(close), tuple(reopened), stop)

    def turn(self, model: str) -> ModelTurn:
        """Return a model's state, and when its workers are predicted to serve.

        One that waits for its turn has it after those whose requests are older. Models in use are
        taken to give their room after the minimum stay.
        """
        known = self._turns[model]
        state = _STATES[known.phase]
        if known.phase is TurnPhase.READY:
            return ModelTurn(state)
        if known.phase is TurnPhase.STARTING:
            return ModelTurn(state, known.began + known.start_seconds)
        slots = [
            self._free_at(turn) for turn in self._turns.values() if turn.phase is not TurnPhase.AWAY
        ]
        slots += [0.0] * (self._room - len(slots))
        heapify(slots)
        for ahead in itertools.takewhile(lambda one: one != model, self._queued):
            heappush(slots, heappop(slots) + self._turns[ahead].start_seconds + self._min_stay)
        return ModelTurn(state, slots[0], known.start_seconds)

    def _free_at(self, turn: _Turn) -> float:
        if turn.phase is TurnPhase.READY:
            return turn.began + self._min_stay
        if turn.phase is TurnPhase.STARTING:
            return turn.began + turn.start_seconds + self._min_stay
        return turn.began

    def _queue(self, uses: Mapping[str, ModelUse], now: float) -> list[str]:
        """Return the models that are away and wanted, that of the oldest request first."""
        wanted = []
        for model, turn in self._turns.items():
            since = uses.get(model, NOT_USED).waiting_since
            if turn.phase is TurnPhase.AWAY and since is not None and turn.not_before <= now:
                wanted.append((since, model))
        return [model for _, model in sorted(wanted)]

    def _victim(self, uses: Mapping[str, ModelUse], now: float, since: float) -> str | None:
        """Return the model that gives its room to one whose oldest request came at `since`."""
        stayed = [
            model
            for model, turn in self._turns.items()
            if turn.phase is TurnPhase.READY and now - turn.began >= self._min_stay
        ]
        idle = [model for model in stayed if uses.get(model, NOT_USED) == NOT_USED]
        if idle:
            return min(idle, key=lambda one: self._turns[one].used_at)
        if now - since >= PATIENCE_STAYS * self._min_stay:
            return min(stayed, key=lambda one: self._turns[one].began, default=None)
        return None

    def _in(
        self, phase: TurnPhase, uses: Mapping[str, ModelUse], *, running: bool | None = None
    ) -> list[str]:
        return [
            model
            for model, turn in self._turns.items()
            if turn.phase is phase and running in (None, uses.get(model, NOT_USED).running)
        ]

    def _take(self, models: Iterable[str], phase: TurnPhase, now: float) -> tuple[str, ...]:
        """Move models to a phase, and return them."""
        taken = tuple(models)
        for model in taken:
            _set(self._turns[model], phase, now)
        return taken


def _set(turn: _Turn, phase: TurnPhase, now: float) -> None:
    turn.phase, turn.began = phase, now
