"""One run of models that take turns, each a simulated cluster of one worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from baton.on_demand.turns import ModelUse, TurnPhase
from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.events import EventLoop
from simulator.on_demand.rules import TurnRule
from simulator.on_demand.workload import ModelRequest
from simulator.policies.baton_queue import BatonQueueRouter
from simulator.policies.holdings import block_keys
from simulator.request import Request

BLOCK_TOKENS = 512
LONGEST_SECONDS = 20_000.0
"""A rule under which requests still wait so long after the last one came does not serve them."""


@dataclass(slots=True)
class TurnTaken:
    """A model's turn. Times are in seconds."""

    model: int
    begun: float
    """When its workers began to start."""
    ready: float
    ended: float = float("inf")
    """When they began to drain."""


@dataclass(slots=True)
class TurnsOutcome:
    """The outcome of one run."""

    swaps: int = 0
    turns: list[TurnTaken] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Seconds of each request until it was sent to its model's worker, in the order of arrivals."""
    ttfts: list[float] = field(default_factory=list)
    """Seconds of each request until its first token; infinite: it failed."""

    @property
    def failed(self) -> int:
        """Requests without a first token."""
        return sum(one == float("inf") for one in self.ttfts)


class _TurnModel:
    """A model's worker and its router."""

    def __init__(self, config: ClusterConfig, loop: EventLoop, done: Callable[[Request], None]):
        self.cluster = SimulatedCluster(config, 1, BLOCK_TOKENS, shared_cache=False, loop=loop)
        self._router = BatonQueueRouter(config, block_keys(1), BLOCK_TOKENS, 0, self.cluster)
        self.cluster.serve(self._router, [], done)

    @property
    def runs(self) -> bool:
        """Whether it has requests."""
        loads = self.cluster.loads
        return bool(loads.waiting.any() or loads.streams.any() or self._router.waiting)


class TurnsRun:
    """Runs requests for models with room for fewer workers than models.

    A worker that leaves keeps its cache, as KV stays in the store.

    Args:
        rule: decides which models have workers.
        requests: in order of arrival.
        models: number of models; the first ones have workers.
        start_seconds: from the start of a model's workers until they serve.
        config: of each model's cluster.
    """

    def __init__(
        self,
        rule: TurnRule,
        requests: Sequence[ModelRequest],
        models: int,
        start_seconds: float,
        config: ClusterConfig,
    ) -> None:
        self._rule = rule
        self._start_seconds = start_seconds
        self._loop = EventLoop()
        self._names = [str(number) for number in range(models)]
        self._models = [_TurnModel(config, self._loop, self._served) for _ in self._names]
        self._requests = [
            Request(number, one.arrival, one.prompt_tokens, one.output_tokens, ())
            for number, one in enumerate(requests)
        ]
        self._of = [one.model for one in requests]
        self._waiting: list[int] = []
        """Requests that wait for their model, by number, in order of arrival."""
        self._unserved = len(requests)
        """Requests without a first token."""
        self.outcome = TurnsOutcome(waits=[float("inf")] * len(requests))
        for model, name in enumerate(self._names):
            if rule.phase(name) is TurnPhase.READY:
                self.outcome.turns.append(TurnTaken(model, 0.0, 0.0))

    def run(self) -> TurnsOutcome:
        """Run all requests to their first token; return what came of them.

        Raises:
            RuntimeError: the rule never serves some.
        """
        for request in self._requests:
            self._loop.at(request.arrival, self._arrive, request.number)
        self._loop.at(0.0, self._poll)
        self._loop.run()
        self.outcome.ttfts = [request.ttft for request in self._requests]
        return self.outcome

    def _arrive(self, number: int) -> None:
        self._waiting.append(number)
        self._release()
        if not self._rule.poll_seconds:
            self._decide()

    def _poll(self) -> None:
        self._decide()
        if self._loop.now > self._requests[-1].arrival + LONGEST_SECONDS:
            raise RuntimeError(f"{self._unserved} requests were not served")
        if self._unserved:
            pause = self._rule.poll_seconds or 0.05  # for the ends of streams
            self._loop.at(self._loop.now + pause, self._poll)

    def _decide(self) -> None:
        now, rule = self._loop.now, self._rule
        since: dict[int, float] = {}
        for number in self._waiting:
            since.setdefault(self._of[number], self._requests[number].arrival)
        # In the order of their oldest requests: rules take the first of several equally old ones.
        order = dict.fromkeys([*since, *range(len(self._models))])
        uses = {
            self._names[model]: ModelUse(since.get(model), self._models[model].runs)
            for model in order
        }
        changes = rule.decide(uses, now)
        self._release()  # to what was opened again
        for name in changes.stop:
            last = next(one for one in reversed(self.outcome.turns) if one.model == int(name))
            last.ended = now
            rule.stopped(name, now)
        for name in changes.start:
            self.outcome.swaps += 1
            ready = now + self._start_seconds
            self.outcome.turns.append(TurnTaken(int(name), now, ready))
            self._loop.at(ready, self._started, name)
        if changes.stop:
            self._loop.at(now, self._decide)

    def _started(self, name: str) -> None:
        self._rule.started(name, self._loop.now)
        self._release()
        if not self._rule.poll_seconds:
            self._decide()

    def _release(self) -> None:
        """Send requests whose model takes them to its worker."""
        waiting = self._waiting
        while (at := self._rule.released([self._names[self._of[one]] for one in waiting])) >= 0:
            number = waiting.pop(at)
            request = self._requests[number]
            self.outcome.waits[number] = self._loop.now - request.arrival
            self._models[self._of[number]].cluster.submit(request)

    def _served(self, _: Request) -> None:
        self._unserved -= 1
