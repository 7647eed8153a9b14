"""The replicas of a pool: which start, run and drain, and what they cost."""

from enum import Enum, auto

from simulator.model.events import EventLoop
from simulator.scaling.cluster import ElasticCluster


class PlaceState(Enum):
    """What a place for a worker has."""

    FREE = auto()
    STARTING = auto()
    RUNNING = auto()
    DRAINING = auto()


class Deployment:
    """Starts and stops workers until there are as many as wanted, as Kubernetes does.

    Starting and draining workers cost as much as running ones.

    Args:
        cluster: whose workers they are.
        loop: simulated time.
        started: workers that run at the beginning, the first ones.
        start_seconds: from the start of a worker until it takes requests.
    """

    def __init__(
        self, cluster: ElasticCluster, loop: EventLoop, started: int, start_seconds: float
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self._start_seconds = start_seconds
        places = len(cluster.workers)
        self._states = [
            PlaceState.RUNNING if place < started else PlaceState.FREE for place in range(places)
        ]
        self._changes = [0] * places
        """Number of changes of each place: what was planned before one is void."""
        self._order = list(range(started))
        """Places of workers that are to stay, the oldest first."""
        self._counted_at = loop.now
        self.worker_seconds = 0.0
        """Seconds of all workers until `count` was last called."""
        self.peak = started
        self.starts = 0
        self.stops = 0
        self.failed = 0

    @property
    def replicas(self) -> int:
        """Workers that run or start."""
        return len(self._order)

    def scale(self, replicas: int) -> None:
        """Start workers, or stop the youngest, so that so many are there."""
        while len(self._order) < replicas:
            if not self._start():
                return  # draining workers have the places; tried again at the next decision
        while len(self._order) > replicas:
            self._stop(self._order.pop())

    def fail(self) -> None:
        """Lose the oldest running worker; another one starts in its place."""
        running = [one for one in self._order if self._states[one] is PlaceState.RUNNING]
        if not running:
            return
        self.count()
        lost = running[0]
        self._order.remove(lost)
        self._set(lost, PlaceState.FREE)
        self.failed += 1
        self._cluster.fail(lost)
        self._start()

    def count(self) -> None:
        """Add the time since the last call to `worker_seconds`, and free what has drained."""
        now = self._loop.now
        there = sum(state is not PlaceState.FREE for state in self._states)
        self.worker_seconds += there * (now - self._counted_at)
        self._counted_at = now
        self.peak = max(self.peak, there)
        for place, state in enumerate(self._states):
            if state is PlaceState.DRAINING and not self._cluster.is_busy(place):
                self._set(place, PlaceState.FREE)
                self._cluster.leave(place)

    def _start(self) -> bool:
        self.count()
        if PlaceState.FREE not in self._states:
            return False
        place = self._states.index(PlaceState.FREE)
        self._set(place, PlaceState.STARTING)
        self._order.append(place)
        self.starts += 1
        at = self._loop.now + self._start_seconds
        self._loop.at(at, self._started, place, self._changes[place])
        return True

    def _started(self, place: int, change: int) -> None:
        if self._changes[place] == change:
            self._set(place, PlaceState.RUNNING)
            self._cluster.join(place)

    def _stop(self, place: int) -> None:
        self.count()
        self.stops += 1
        if self._states[place] is PlaceState.STARTING:
            self._set(place, PlaceState.FREE)
            return
        self._set(place, PlaceState.DRAINING)
        self._cluster.drain(place)

    def _set(self, place: int, state: PlaceState) -> None:
        self._states[place] = state
        self._changes[place] += 1
