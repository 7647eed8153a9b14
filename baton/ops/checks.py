"""What /livez and /readyz say: the states of a process's parts.

Parts are set on the process's event loop and read on the thread of the ops port, which answers
while that loop is stuck.
"""

import time
from collections.abc import Callable, Sequence

State = tuple[str, str]
"""A part, and why it fails; empty: it does not."""
TICK_SECONDS = 0.5
"""`ProcessClock.tick` is called this often."""
START = "start"
DRAIN = "drain"


class ProcessClock:
    """Seconds in which this process ran: a pause of all of it, as by SIGSTOP, does not count.

    One thread ticks, any thread reads. Between two ticks at most TICK_SECONDS pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lost_and_due = 0.0, clock() + TICK_SECONDS

    def tick(self) -> None:
        lost, due = self._lost_and_due
        now = self._clock()
        self._lost_and_due = lost + max(0.0, now - due), now + TICK_SECONDS

    def now(self) -> float:
        """Return the seconds until now, from an arbitrary beginning."""
        lost, due = self._lost_and_due
        now = self._clock()
        return now - lost - max(0.0, now - due)


class Liveness:
    """The parts that only a restart frees where they are stuck. It depends on no other process.

    Args:
        stuck_seconds: for so long a part may be at one thing.
        clock: of the stamps that parts give.
    """

    def __init__(self, stuck_seconds: float = 30.0, clock: ProcessClock | None = None) -> None:
        self.clock = clock or ProcessClock()
        self._stuck_seconds = stuck_seconds
        self._parts: dict[str, Callable[[], float | None]] = {}

    def watch(self, part: str, busy_since: Callable[[], float | None]) -> None:
        """Watch a part.

        Args:
            part: its name.
            busy_since: returns since when, by `clock`, it has been at what it does now; None: it
                does nothing. Called on another thread.
        """
        self._parts = {**self._parts, part: busy_since}

    def states(self) -> Sequence[State]:
        """Return the state of each part. On any thread."""
        return [(part, self._state(busy_since)) for part, busy_since in self._parts.items()]

    def _state(self, busy_since: Callable[[], float | None]) -> str:
        since = busy_since()
        seconds = 0.0 if since is None else self.clock.now() - since
        return f"stuck for {seconds:.0f} s" if seconds > self._stuck_seconds else ""


class Readiness:
    """What a process waits for before it counts as one that serves. Owned by its event loop.

    It is ready once it waits for nothing, stays so, and is not any more from when it drains.
    """

    def __init__(self) -> None:
        self._reasons = {START: "the process is starting"}
        self._listeners: list[Callable[[bool], None]] = []
        self._states: tuple[State, ...] = tuple(self._reasons.items())

    @property
    def ready(self) -> bool:
        return not any(self._reasons.values())

    def states(self) -> Sequence[State]:
        """Return the state of each part. On any thread."""
        return self._states

    def wait_for(self, part: str, reason: str) -> None:
        """Be not ready before `done` is called for this part.

        Args:
            part: its name.
            reason: what is missing, for people; a later call changes it.
        """
        self._set(part, reason)

    def done(self, part: str) -> None:
        """Wait for this part no more."""
        self._set(part, "")

    def follow(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with whether the process is ready: now, and when that changes."""
        self._listeners.append(listener)
        listener(self.ready)

    def _set(self, part: str, reason: str) -> None:
        before = self.ready
        self._reasons[part] = reason
        self._states = tuple(self._reasons.items())
        if self.ready != before:
            for listener in self._listeners:
                listener(self.ready)
