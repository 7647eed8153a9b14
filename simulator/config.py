"""Configuration of a simulated cluster."""

from dataclasses import dataclass, field

from services.router.policy.costs import Disaggregation
from simulator.model.costs import CostModel, Ordering

MAX_WORKERS = 10_000


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A cluster, and the timing of reports to its router. Times are in seconds."""

    workers: int = 8
    """Workers that compute prompts."""
    decode_workers: int = 0
    """Workers that run streams; 0: the workers that compute prompts do."""
    cache_tokens: int = 3_000_000
    """KV tokens that each worker keeps."""
    costs: CostModel = field(default_factory=CostModel)
    ordering: Ordering = field(default_factory=Ordering)
    """Order of prompts at each worker."""
    slow_workers: int = 0
    """Number of workers that are slower than the others."""
    slow_speed: float = 0.5
    event_delay: float = 0.0
    """Delay from a change of a cache until the router learns of it."""
    report_interval: float = 0.05
    """Time between load reports."""
    report_delay: float = 0.0
    """Delay of load reports."""
    disaggregation: Disaggregation = "auto"
    """As in Baton's setting."""
    started_workers: int | None = None
    """How many of `workers` there are at the beginning; None: all."""

    def speed(self, worker: int) -> float:
        """Return a worker's speed, relative to the cost model."""
        return self.slow_speed if worker < self.slow_workers else 1.0

    @property
    def pools(self) -> bool:
        """Whether prompts and streams have separate workers."""
        return self.decode_workers > 0

    @property
    def all_workers(self) -> int:
        """Number of workers of both kinds; those that compute prompts come first."""
        return self.workers + self.decode_workers
