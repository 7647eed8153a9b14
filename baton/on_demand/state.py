"""Whether a model whose workers start on demand has them now, and when it will."""

from enum import Enum
from typing import NamedTuple


class ModelState(Enum):
    """The values are what users read."""

    READY = "ready"
    STARTING = "starting"
    ON_DEMAND = "on demand"
    """It has no workers; a request that waits has them started."""
    LEAVING = "leaving"
    """Its workers finish the requests that they have; new ones wait."""


class ModelTurn(NamedTuple):
    """The state of a model, with a prediction. Times are of the reader's monotonic clock."""

    state: ModelState
    room_at: float = 0.0
    """When there will be room for its workers."""
    start_seconds: float = 0.0
    """Seconds from then until they serve."""

    @property
    def holds(self) -> bool:
        """Whether requests wait, whatever workers there are."""
        return self.state is not ModelState.READY

    def ready_in(self, now: float) -> float:
        """Return the predicted seconds until its workers serve; 0: they do."""
        return max(0.0, self.room_at - now) + self.start_seconds if self.holds else 0.0
