"""What decides how many replicas a pool is to have."""

import math
from collections import deque
from typing import Protocol

from baton.autoscaling.hpa import desired_replicas
from services.router.sizing.decision import SizingDecision
from services.router.sizing.sizer import Sizer
from services.router.state.instances import Role
from simulator.policies.baton import MODEL, BatonRouter
from simulator.scaling.cluster import ElasticCluster
from simulator.scaling.config import ScalingConfig


class Scaler(Protocol):
    """Decides how many replicas there should be."""

    def observe(self, now: float) -> None:
        """Look at the cluster; called every second."""

    def wanted(self, replicas: int, now: float) -> int:
        """Return how many replicas there should be.

        Args:
            replicas: those that run or start.
            now: simulated seconds.
        """


class FixedScaler:
    """Never changes the replicas."""

    def observe(self, now: float) -> None:
        """Do nothing."""

    def wanted(self, replicas: int, now: float) -> int:  # noqa: ARG002  # as Scaler has it
        return replicas


class NeedScaler:
    """The router's sizing under an HPA whose target is 1 per replica.

    Args:
        router: what it knows is what a router knows.
        config: of the pool.
        role: of the pool's workers.
    """

    def __init__(self, router: BatonRouter, config: ScalingConfig, role: Role) -> None:
        self._router = router
        self._config = config
        self._role = role
        self._sizer = Sizer(config.sizing)
        self.decision: SizingDecision | None = None
        """The last one; None: there is none."""

    def observe(self, now: float) -> None:
        """Decide anew, as a router does every second."""
        config = self._config
        observation = self._router.observation(
            now,
            config.itl_target,
            config.sizing.ttft_target,
            covered=now >= config.sizing.arrival_seconds,
        )
        self.decision = self._sizer.decide(MODEL, observation, now).get(self._role)

    def wanted(self, replicas: int, now: float) -> int:
        """Return what the HPA's formula gives."""
        begin, end = self._config.blind
        if self.decision is None or begin <= now < end:
            return replicas
        return desired_replicas(
            self.decision.replicas, 1, replicas, 0, self._config.sizing.max_replicas
        )


class QueueScaler:
    """The number of prompts that are not computed, with an HPA's stabilization on the way down.

    Args:
        cluster: whose prompts are counted, in the router and at workers.
        config: of the pool.
    """

    def __init__(self, cluster: ElasticCluster, config: ScalingConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._recent: deque[tuple[float, int]] = deque()
        self._stopped_at = -math.inf

    def observe(self, now: float) -> None:
        """Do nothing: metrics are scraped when it decides."""

    def wanted(self, replicas: int, now: float) -> int:
        """Return what the HPA's formula gives."""
        config, sizing = self._config, self._config.sizing
        begin, end = config.blind
        if begin <= now < end:
            return replicas
        prompts = self._cluster.unplaced + self._cluster.prompts
        wanted = desired_replicas(
            prompts, config.queue_target, replicas, sizing.min_replicas, sizing.max_replicas
        )
        recent = self._recent
        recent.append((now, wanted))
        while recent[0][0] < now - config.down_window:
            recent.popleft()
        if wanted >= replicas:
            return wanted
        stable = max(one for _, one in recent)
        if stable >= replicas or now - self._stopped_at < config.down_seconds:
            return replicas
        self._stopped_at = now
        return replicas - 1
