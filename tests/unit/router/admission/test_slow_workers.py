"""Workers that take longer than predicted: who is accepted has its first token in time."""

import heapq
import math
import random
from collections.abc import Mapping

import pytest

from baton.errors import BatonError
from services.router.admission.lateness import Lateness
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.fairness import FairShares
from tests.support.router.admission import Workers, waiting

COUNT = 8
TARGET = 10.0
DELAY = 0.2
"""Before a worker that has nothing to compute begins."""
MEAN_TOKENS = 133
"""Of prompts. At 100 tokens a second workers carry 6 requests a second, if all is as predicted."""


class SlowWorkers(Workers):
    """Their prompts take `slow` times as long as planned, each by a fifth more or less."""

    def __init__(self, slow: float, draw: random.Random) -> None:
        super().__init__({str(number): 0.0 for number in range(COUNT)})
        self.ends = dict.fromkeys(self.queues, 0.0)
        self._slow = slow
        self._draw = draw

    def queue_seconds(self, now: float, rank: int) -> Mapping[str, float]:
        for worker, end in self.ends.items():
            self.queues[worker] = max(0.0, end - now) / self._slow
        return self.queues

    def compute(self, worker: str, seconds: float, now: float) -> float:
        """Return when a prompt is computed that was placed now."""
        begins = max(now + DELAY, self.ends[worker])
        self.ends[worker] = begins + seconds * self._slow * self._draw.uniform(0.8, 1.2)
        return self.ends[worker]


@pytest.mark.parametrize("slow", [1.0, 1.15, 1.4])
def test_of_those_accepted_under_five_times_the_load_most_are_in_time(slow: float) -> None:
    draw = random.Random(1)
    workers, lateness = SlowWorkers(slow, draw), Lateness()
    queue = AdmissionQueue(FairShares(), lateness=lateness)
    events: list[tuple[float, int, tuple[float, float] | None]] = []
    """When a request comes, or a prompt was computed: as predicted, and as it was."""
    now = 0.0
    for number in range(1, 6_000):
        now += draw.expovariate(30.0)
        events.append((now, number, None))
    arrived: dict[int, float] = {}
    ttfts: list[float] = []
    tokens_done = 0
    while events:
        now, number, computed = heapq.heappop(events)
        if computed is not None:
            lateness.observe(*computed)
        elif number:
            tokens = max(10, round(draw.lognormvariate(math.log(MEAN_TOKENS) - 0.32, 0.8)))
            one = waiting(number, tokens, now, target=TARGET)
            try:
                queue.add(one, workers, now)
            except BatonError:
                continue
            arrived[number] = now
        for due in queue.due(workers, now):
            assert not isinstance(due.plan, BatonError)
            predicted = due.plan.ttft_seconds
            end = workers.compute(due.plan.worker_id, due.plan.prefill_seconds, now)
            heapq.heappush(events, (end, 0, (predicted, end - now)))
            heapq.heappush(events, (max(now, end - 0.1), 0, None))
            ttfts.append(end - arrived.pop(due.waiting.number))
            tokens_done += due.plan.uncached_tokens
    assert not arrived
    assert sum(ttft <= TARGET for ttft in ttfts) >= 0.95 * len(ttfts)
    assert max(ttfts) < 2 * TARGET
    # They are not in time because most of what could be computed is refused.
    assert tokens_done > 0.85 * COUNT * 100 / slow * now
