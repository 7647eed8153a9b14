"""What every pool of every model needs, from what a router knows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from services.router.sizing.decision import Need, SizingDecision, SizingReason, largest
from services.router.sizing.demand import ModelDemand
from services.router.sizing.needs import decode_need, prefill_need
from services.router.sizing.pool import PoolFacts, PoolSizer
from services.router.sizing.replicas import ReplicaPool
from services.router.sizing.settings import DEFAULT_SIZING, SizingSettings
from services.router.sizing.step_times import BatchStepTimes
from services.router.state.instances import Role

FORGET_SECONDS = 3600.0
"""A pool without replicas is forgotten after this time, if the model's other pools have some."""
WORKERS = (Role.PREFILL, Role.DECODE, Role.COMBINED)
_NONE = ReplicaPool()


class ModelObservation(NamedTuple):
    """What is known of a model at one moment."""

    demand: ModelDemand
    """Of all routers, as far as it is known."""
    pools: Mapping[Role, ReplicaPool]
    """Pools with replicas."""
    routers_known: bool = True
    """Whether the demand at every router is known."""
    covered: bool = True
    """Whether the arrivals of a whole window are known."""
    itl_target: float = 0.05
    """Seconds between tokens, for streams whose class sets no target."""
    ttft_target: float = DEFAULT_SIZING.ttft_target


@dataclass(slots=True)
class _PoolState:
    """What is remembered of a pool."""

    sizer: PoolSizer
    rate: float | None = None
    """The last learned prompt tokens per second of a replica."""
    pages: float | None = None
    """The last known KV pages of a replica."""
    block_tokens: float | None = None
    steps: BatchStepTimes = field(default_factory=BatchStepTimes)
    missed: float = 0.0
    """Seconds that it was without replicas while another pool of the model had some."""


class Sizer:
    """Decides how many replicas each pool needs. Owned by one event loop.

    A pool is the workers of one role and model. Where prompts, or streams, of a model have two
    pools, each takes a part of them by its replicas. A pool that takes both needs what the larger
    of the two needs, since its rate is learned next to streams.

    Args:
        settings: constants.
    """

    def __init__(self, settings: SizingSettings = DEFAULT_SIZING) -> None:
        self._settings = settings
        self._models: dict[str, dict[Role, _PoolState]] = {}
        self._observed_at: dict[str, float] = {}

    def retain(self, models: Iterable[str]) -> None:
        """Forget all models but these."""
        kept = set(models)
        for model in self._models.keys() - kept:
            del self._models[model]
            self._observed_at.pop(model, None)

    def decide(self, model: str, seen: ModelObservation, now: float) -> dict[Role, SizingDecision]:
        """Return what each pool of a model needs; pools without a decision are left out.

        A model that never had workers and is requested needs one replica in every role, since its
        roles are not known.

        Args:
            model: the model.
            seen: what is known now.
            now: a monotonic clock, in seconds; it never decreases.
        """
        states = self._models.setdefault(model, {})
        roles = seen.pools.keys() | states.keys()
        if not roles and seen.demand.any:
            roles = set(WORKERS)
        passed = now - self._observed_at.get(model, now)
        self._observed_at[model] = now
        for role in WORKERS:
            if role in roles and role not in states:
                states[role] = _PoolState(PoolSizer(self._settings))
        for role in list(states):
            self._miss(states, role, seen, passed)
        for role, pool in seen.pools.items():
            self._learn(states[role], role, pool, passed)
        decisions = {}
        for role in WORKERS:
            if role in states:
                decision = states[role].sizer.decide(self._facts(role, states, seen), now)
                if decision is not None:
                    decisions[role] = decision
        return decisions

    def _miss(
        self,
        states: dict[Role, _PoolState],
        role: Role,
        seen: ModelObservation,
        passed: float,
    ) -> None:
        """Forget a pool that is no longer deployed, or never was."""
        state = states[role]
        if role in seen.pools or not any(pool.live for pool in seen.pools.values()):
            state.missed = 0.0
            return
        state.missed += passed
        if state.missed > FORGET_SECONDS:
            del states[role]

    def _learn(self, state: _PoolState, role: Role, pool: ReplicaPool, passed: float) -> None:
        state.rate = pool.prefill_rate() or state.rate
        state.pages = pool.total_pages() or state.pages
        state.block_tokens = pool.block_tokens() or state.block_tokens
        if role.can_decode:
            state.steps.fade(passed)
            for one in pool.reporting:
                state.steps.observe(one.running, one.step_seconds)

    def _facts(
        self, role: Role, states: Mapping[Role, _PoolState], seen: ModelObservation
    ) -> PoolFacts:
        prefills, decodes = _takers(states.keys())
        pool = seen.pools.get(role, _NONE)
        needs = []
        if role in prefills:
            needs.append(self._prefill(role, prefills, decodes, states, seen))
        if role in decodes:
            needs.append(self._decode(role, decodes, states, seen))
        missing = None
        if not seen.routers_known or not seen.demand.valid:
            missing = SizingReason.HOLD_ROUTERS
        elif not all(one.complete for one in seen.pools.values()):
            missing = SizingReason.HOLD_REPORTS
        return PoolFacts(
            need=largest(needs),
            live=pool.live,
            there=pool.there,
            demanded=seen.demand.any,
            busy=any(one.busy for one in seen.pools.values()),
            wait_seconds=seen.demand.wait_seconds if role in prefills else 0.0,
            ttft_target=seen.ttft_target,
            missing=missing,
            covered=seen.covered,
        )

    def _prefill(
        self,
        role: Role,
        prefills: list[Role],
        decodes: list[Role],
        states: Mapping[Role, _PoolState],
        seen: ModelObservation,
    ) -> Need:
        pool, state, demand = seen.pools.get(role, _NONE), states[role], seen.demand
        if not demand.valid:
            return Need(0.0, SizingReason.ARRIVALS, known=False)
        backlog = float(
            sum(
                replica.pending_tokens
                for one in prefills
                for replica in seen.pools.get(one, _NONE).replicas
            )
        )
        # What waits for room to decode does not wait for prefill.
        decoding = [one for one in (seen.pools.get(taker) for taker in decodes) if one is not None]
        if not decoding or not all(one.full for one in decoding):
            backlog += demand.queued_tokens
        there = sum(seen.pools.get(one, _NONE).there for one in prefills)
        need = prefill_need(demand, backlog, there, state.rate, seen.ttft_target, self._settings)
        if need.replicas and pool.prefill_rate() is None:
            need = need._replace(known=False)
        return need.scaled(_share(role, prefills, seen))

    def _decode(
        self,
        role: Role,
        decodes: list[Role],
        states: Mapping[Role, _PoolState],
        seen: ModelObservation,
    ) -> Need:
        pool, state, demand = seen.pools.get(role, _NONE), states[role], seen.demand
        if not demand.valid:
            return Need(0.0, SizingReason.BATCH, known=False)
        replicas = [replica for one in decodes for replica in seen.pools.get(one, _NONE).replicas]
        sequences = demand.queued_sequences + sum(one.sequences for one in replicas)
        pages = float(sum(one.used_pages for one in replicas))
        if state.block_tokens:
            pages += demand.queued_kv_tokens / state.block_tokens
        target = min(seen.itl_target, pool.itl_target())
        batch = min(pool.max_running(), state.steps.batch_within(target))
        need = decode_need(sequences, pages, state.pages, batch, self._settings)
        return need.scaled(_share(role, decodes, seen))


def _takers(roles: Iterable[Role]) -> tuple[list[Role], list[Role]]:
    """Return the roles that take a model's prompts, and those that take its streams.

    Decode workers take prompts only if no other role does.
    """
    known = [role for role in WORKERS if role in set(roles)]
    prefills = [role for role in known if role.can_prefill] or known
    return prefills, [role for role in known if role.can_decode] or known


def _share(role: Role, takers: list[Role], seen: ModelObservation) -> float:
    """Return the part of a demand that a pool takes, by its replicas among all that take it."""
    counts = {taker: seen.pools.get(taker, _NONE).there for taker in takers}
    total = sum(counts.values())
    return counts[role] / total if total else 1 / len(takers)
