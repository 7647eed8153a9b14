"""Each class is planned with what gives way to it left out."""

from collections.abc import Mapping

from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.fairness import FairShares
from tests.support.router.admission import Workers, place_due, waiting

BATCH = 2


class BusyWithBatch(Workers):
    """Has much to compute for class batch, and what `queues` says for higher classes."""

    def queue_seconds(self, now: float, rank: int) -> Mapping[str, float]:
        return {one: seconds + 9.0 * (rank >= BATCH) for one, seconds in self.queues.items()}

    def any_room(self, rank: int) -> bool:
        return rank < BATCH


def test_a_higher_class_does_not_wait_until_lower_ones_were_computed() -> None:
    queue, workers = AdmissionQueue(FairShares()), BusyWithBatch({"a": 0.0})
    queue.add(waiting(1, rank=BATCH), workers, 0.0)
    assert place_due(queue, workers) == []
    queue.add(waiting(2, rank=1), workers, 0.0)
    assert place_due(queue, workers) == [2]
    queue.add(waiting(3, rank=1), workers, 0.0)
    assert place_due(queue, workers) == [], "its own class has enough to compute"


def test_a_class_that_goes_first_by_its_tier_holds_no_higher_one_back() -> None:
    queue, workers = AdmissionQueue(FairShares()), BusyWithBatch({"a": 0.0})
    queue.add(waiting(1, rank=BATCH, tier=0), workers, 0.0)
    queue.add(waiting(2, rank=1, tier=1), workers, 0.0)
    assert list(queue.order()) == [1, 2]
    assert place_due(queue, workers) == [2]
