"""A free tenant behind thousands of requests of a pro tenant has its first token in its turn."""

from collections import Counter, deque
from collections.abc import Callable

import pytest

from baton.errors import BatonError
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tiers import TierPolicy
from services.router.admission.waiting import QueueSettings, TicketCharge
from tests.support.router.admission import Workers, made, waiting

PRO, FREE = 1, 2
STRICT = TierPolicy(strict=True)


class Cluster:
    """Workers of simulated time that compute 100 tokens a second, one prompt after another."""

    def __init__(self, count: int, tiers: TierPolicy) -> None:
        self.workers = Workers({str(worker): 0.0 for worker in range(count)})
        self._ends = dict.fromkeys(self.workers.queues, 0.0)
        settings = QueueSettings(max_tenant=5_000, max_total=20_000, max_wait=1e6, tiers=tiers)
        self.queue = AdmissionQueue(FairShares(0.0), settings)
        self.now = 0.0
        self.first_tokens: dict[int, float] = {}
        self.tokens: Counter[int] = Counter()
        """By tier, that were placed."""
        self.placed: Counter[int] = Counter()
        """Requests, likewise."""
        self.asked = 0
        self._running: deque[tuple[float, TicketCharge]] = deque()

    def ask(self, tier: int, tokens: int = 1, tenant: str = "") -> int:
        """Let a request wait; return its number."""
        self.asked += 1
        one = waiting(self.asked, tokens, self.now, tier=tier, tenant=tenant or str(tier))
        self.queue.add(one, self.workers, self.now)
        return self.asked

    def step(self) -> None:
        """Let time pass until a worker takes prompts, and place what may go."""
        self.now = max(self.now, min(self._ends.values()) - 0.1)
        while self._running and self._running[0][0] <= self.now:
            self.queue.charges.settle(self._running.popleft()[1])
        for worker, end in self._ends.items():
            self.workers.queues[worker] = max(0.0, round(end - self.now, 9))
        for due in self.queue.due(self.workers, self.now):
            assert not isinstance(due.plan, BatonError)
            self.workers.place(due)
            end = self.now + self.workers.queues[due.plan.worker_id]
            self._ends[due.plan.worker_id] = end
            self.first_tokens[due.waiting.number] = end
            self.tokens[due.waiting.rank[0]] += due.waiting.request.prompt_tokens
            self.placed[due.waiting.rank[0]] += 1
            assert due.charge is not None
            self._running.append((end, due.charge))

    def first_token(self, number: int, refill: Callable[[], object] = lambda: None) -> float:
        """Return when the first token of a request comes; `refill` is called between."""
        while number not in self.first_tokens:
            refill()
            self.step()
        return self.first_tokens[number]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("hog_stops", [True, False])
def test_a_free_tenant_behind_3000_of_a_pro_tenant_waits_for_its_turn(
    hog_stops: bool, workers: int
) -> None:
    cluster = Cluster(workers, TierPolicy())
    for _ in range(3_000):
        cluster.ask(PRO)
    while cluster.now < 1.0:
        cluster.step()
    since = cluster.now
    number = cluster.ask(FREE)
    refill = (lambda: None) if hog_stops else lambda: cluster.ask(PRO)
    assert cluster.first_token(number, refill) - since <= 1.5
    assert len(cluster.queue) > 2_000


def test_strict_tiers_keep_a_free_tenant_waiting_for_all_of_a_pro_tenant() -> None:
    cluster = Cluster(1, STRICT)
    for _ in range(300):
        cluster.ask(PRO)
    cluster.step()
    number = cluster.ask(FREE)
    cluster.first_token(number)
    assert len(cluster.queue) == 0
    assert max(cluster.first_tokens.values()) == cluster.first_tokens[number]


@pytest.mark.parametrize("workers", [1, 8])
def test_saturated_tiers_are_given_what_their_weights_say(workers: int) -> None:
    cluster = Cluster(workers, TierPolicy())
    prompts = {0: 100, PRO: 20, FREE: 4}
    waits: Counter[int] = Counter()
    while cluster.now < 1_200 / workers:
        for tier, tokens in prompts.items():
            while waits[tier] < 40:
                waits[tier] += 1
                cluster.ask(tier, tokens + cluster.asked % 7)
        before = cluster.placed.copy()
        cluster.step()
        waits -= cluster.placed - before
    total = sum(cluster.tokens.values())
    for tier, share in enumerate(TierPolicy().shares):
        assert cluster.tokens[tier] / total == pytest.approx(share, rel=0.03)


def test_tenants_of_a_tier_share_what_it_is_given() -> None:
    cluster = Cluster(2, TierPolicy())
    steady, new = [], []
    for _ in range(60):
        cluster.ask(PRO, 5, "pro")
    for _ in range(300):
        # One that has waited all the time, and one that comes again and again.
        steady.append(cluster.ask(FREE, 5, "steady"))
    for _ in range(150):
        new.append(cluster.ask(FREE, 5, "new"))
        cluster.first_token(new[-1], lambda: cluster.ask(PRO, 5, "pro"))
    served = sum(number in cluster.first_tokens for number in steady)
    assert served == pytest.approx(len(new), rel=0.05)


def test_targets_are_kept_by_what_each_tier_is_given() -> None:
    workers = Workers({"a": 0.0})
    queue = made(*(waiting(number, tier=FREE) for number in range(1, 101)), workers=workers)
    # Of 100 s of free's work a fourth of its own goes before pro's.
    for number in range(101, 105):
        assert queue.add(waiting(number, tier=PRO, target=6.5), workers, 0.0) is None
    with pytest.raises(BatonError, match=r"is 6\.\d s; the request allows 5\.9 s"):
        queue.add(waiting(200, 101, tier=PRO, target=5.9), workers, 0.0)
    strict = made(workers=workers, tiers=STRICT)
    strict.add(waiting(1, tier=PRO), workers, 0.0)
    strict.add(waiting(2, tier=FREE), workers, 0.0)
    assert strict.add(waiting(3, 110, tier=PRO, target=2.2), workers, 0.0) is None
    with pytest.raises(BatonError, match=r"is 4\.1 s"):
        strict.add(waiting(4, tier=FREE, target=4.0), workers, 0.0)


def test_a_full_queue_takes_the_place_of_the_tier_with_most_for_its_share() -> None:
    workers = Workers({"a": 9.0})
    hogs = [waiting(number, tier=PRO, tenant=str(number % 3)) for number in range(1, 13)]
    queue = made(*hogs, workers=workers, max_total=12)
    # 12 of four shares are more than each of 1 to 3 of one.
    for number in (101, 102):
        gave_way = queue.add(waiting(number, tier=FREE, tenant="free"), workers, 0.0)
        assert gave_way is not None
        assert gave_way.rank[0] == PRO
    for number, tier in ((103, FREE), (201, PRO)):
        with pytest.raises(BatonError, match="queue for all tenants is full"):
            queue.add(waiting(number, tier=tier, tenant="new"), workers, 0.0)


def test_what_goes_in_its_tiers_turn_is_not_passed_in_the_lines_of_workers() -> None:
    workers = Workers({"a": 0.0})
    tiers = TierPolicy()
    queue = AdmissionQueue(FairShares(), QueueSettings(gate=1e9, tiers=tiers))
    for number in range(1, 31):
        queue.add(waiting(number, tier=PRO), workers, 0.0)
    queue.add(waiting(99, tier=FREE), workers, 0.0)
    ranks = [(due.waiting.number, due.rank) for due in queue.due(workers, 0.0)]
    place = ranks.index((99, (0, 0)))
    later = [rank for _, rank in ranks[place + 1 :]]
    # Four of pro are equal to it, as its weight says; the others go behind it, though older.
    assert later[4:] == [(1, 0)] * len(later[4:])
    assert len(later) > 20
    assert place <= 1
    strict = AdmissionQueue(FairShares(), QueueSettings(gate=1e9, tiers=STRICT))
    for number, tier in ((1, FREE), (2, PRO)):
        strict.add(waiting(number, tier=tier), workers, 0.0)
    assert place_ranks(strict, workers) == [(2, (PRO, 0)), (1, (FREE, 0))]


def place_ranks(queue: AdmissionQueue, workers: Workers) -> list[tuple[int, tuple[int, int]]]:
    return [(due.waiting.number, due.rank) for due in queue.due(workers, 0.0)]
