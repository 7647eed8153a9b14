"""What limits cost a request: CPU of a frontend and of the limits' owner.

    python -m bench.limits.cost [--requests 20000] [--json FILE]

A key, its project and its tenant each limit requests, tokens and requests at once: nine limits that
must agree. Each request reserves 500 tokens and uses 300. `ahead`: a chunk of everything is here.
`asked`: with what the router does, and with all messages as objects, not as bytes. `refused`:
requests over a limit that is used up. `budgets`: as `ahead`, with a budget of each of the three
beside the nine limits; and `their refusal`: of requests that a budget refuses.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.limit_set import LimitRefusal, LimitReservation, LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import Subject, SubjectLimits
from bench.harness import cli
from bench.harness.table import Table

TOKENS, USED = 500, 300
COST, SETTLED = 900_000, 400_000
"""In nano-dollars: reserved, and used."""
MONTH = 202611


class Pair:
    """A frontend and the router that owns all limits."""

    def __init__(self, requests: int, tokens: int, budget: int = 0) -> None:
        self.now = 1000.0
        self.owner = LimitOwner("router")
        self.owner.observe(["router"], 0.0)
        self.limiter = Limiter(MONTH)
        self.limiter.observe(["router"], 1, self.now)
        self.messages = 0
        self.limits: LimitSet = self.limiter.limit_set(
            SubjectLimits(subject, "x", requests, tokens, 1000, budget_nanodollars_per_month=budget)
            for subject in Subject
        )
        self.ledger = Ledger("router", self.owner)

    def exchange(self) -> None:
        """Bring all questions to the router, and all answers back."""
        for router, ask in self.limiter.take_messages(self.now):
            self.messages += 1
            answer = self.owner.answer("frontend", ask, self.now)
            if answer is not None:
                self.messages += 1
                self.limiter.receive(router, answer, self.now)
        for limit_id in self.ledger.unread(10):
            self.ledger.was_read(limit_id, None)
            self.owner.serve(self.now)
        for _, answer in self.owner.take_pushed():
            self.limiter.receive("router", answer, self.now)


def ahead(requests: int) -> tuple[float, float]:
    """Return µs of CPU per request, and messages: everything is here already."""
    pair = Pair(10**9, 10**12)
    first = pair.limits.reserve(TOKENS, pair.now)
    while first is None:
        pair.exchange()
        first = pair.limits.reserve(TOKENS, pair.now)
    assert isinstance(first, LimitReservation)
    first.settle(USED)

    def one() -> None:
        outcome = pair.limits.reserve(TOKENS, pair.now)
        assert isinstance(outcome, LimitReservation)
        outcome.settle(USED)

    return _per_request(one, requests), 0.0


def asked(requests: int) -> tuple[float, float]:
    """Return µs of CPU per request, of both sides, and messages per request."""
    pair = Pair(60 * 1000, 60 * 1000 * TOKENS)

    ticked = pair.now

    def one() -> None:
        nonlocal ticked
        pair.now += 0.001
        outcome = pair.limits.reserve(TOKENS, pair.now)
        while outcome is None:
            pair.exchange()
            outcome = pair.limits.reserve(TOKENS, pair.now)
        assert isinstance(outcome, LimitReservation)
        outcome.settle(USED)
        pair.exchange()
        if pair.now >= ticked + 0.25:
            ticked = pair.now
            pair.limiter.tick(ticked)

    return _per_request(one, requests), pair.messages / requests


def refused(requests: int) -> tuple[float, float]:
    """Return µs of CPU per request that is refused, and messages per request."""
    pair = Pair(60, 60_000)

    def one() -> None:
        outcome = pair.limits.reserve(60_000, pair.now)
        while outcome is None:
            pair.exchange()
            outcome = pair.limits.reserve(60_000, pair.now)
        assert isinstance(outcome, LimitRefusal)

    while not isinstance(pair.limits.reserve(60_000, pair.now), LimitRefusal):
        pair.exchange()
    return _per_request(one, requests), pair.messages / requests


def budgets(requests: int) -> tuple[float, float]:
    """Return µs of CPU per request, and messages: limits as in `ahead`, and three budgets."""
    pair = Pair(10**9, 10**12, 10**18)

    def one() -> None:
        hold = pair.limits.hold(COST)
        outcome = pair.limits.reserve(TOKENS, pair.now, hold)
        while outcome is None:
            pair.exchange()
            outcome = pair.limits.reserve(TOKENS, pair.now, hold)
        assert isinstance(outcome, LimitReservation)
        outcome.settle(USED, SETTLED)

    one()
    pair.messages = 0
    return _per_request(one, requests), pair.messages / requests


def their_refusal(requests: int) -> tuple[float, float]:
    """Return µs of CPU per request that a budget refuses, and messages per request."""
    pair = Pair(10**9, 10**12, COST)

    def one() -> bool:
        hold = pair.limits.hold(COST)
        assert hold is not None
        outcome = pair.limits.reserve(TOKENS, pair.now, hold)
        while outcome is None:
            pair.exchange()
            outcome = pair.limits.reserve(TOKENS, pair.now, hold)
        if isinstance(outcome, LimitReservation):
            return False
        hold.settle(0)
        return True

    while not one():
        pass
    pair.messages = 0
    return _per_request(one, requests), pair.messages / requests


def _per_request(one: Callable[[], object], requests: int) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(requests // 5):
            one()
        best = min(best, time.process_time() - began)
    return best / (requests // 5) * 1e6


def measure(options: argparse.Namespace) -> dict[str, Any]:
    table = Table(("case", "<13"), ("us of CPU/request", "17.1f"), ("messages/request", "16.2f"))
    results = {}
    for name, case in (
        ("ahead", ahead),
        ("asked", asked),
        ("refused", refused),
        ("budgets", budgets),
        ("their refusal", their_refusal),
    ):
        results[name] = case(options.requests)
        table.row(name, *results[name])
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=20_000, help="default: 20000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--requests 200")
