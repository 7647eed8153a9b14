"""What is simulated."""

from dataclasses import dataclass, field

from services.router.policy.costs import Disaggregation
from simulator.model.costs import CostModel, Ordering

MAX_WORKERS = 10_000


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A cluster, and what its router is told when. Times are in seconds."""

    workers: int = 8
    """That compute prompts."""
    decode_workers: int = 0
    """That run the streams; 0: the workers that compute prompts do."""
    cache_tokens: int = 3_000_000
    """KV that each worker keeps."""
    costs: CostModel = field(default_factory=CostModel)
    ordering: Ordering = field(default_factory=Ordering)
    """At each worker."""
    slow_workers: int = 0
    """How many are slower than the others."""
    slow_speed: float = 0.5
    event_delay: float = 0.0
    """From a change of a cache until the router knows of it."""
    report_interval: float = 0.05
    """Between reports of load."""
    report_delay: float = 0.0
    """On their way."""
    disaggregation: Disaggregation = "auto"
    """As Baton's setting."""

    def speed(self, worker: int) -> float:
        """Return a worker's speed, of what the cost model says."""
        return self.slow_speed if worker < self.slow_workers else 1.0

    @property
    def pools(self) -> bool:
        """Whether prompts and streams have workers of their own."""
        return self.decode_workers > 0

    @property
    def all_workers(self) -> int:
        """Number of workers of both kinds; those that compute prompts come first."""
        return self.workers + self.decode_workers
