"""The largest need that routers published lately, as the query for Prometheus takes it."""

from prometheus_client.parser import text_string_to_metric_families

FRESH_SECONDS = 30.0
"""A router's numbers count for this long."""
_METRIC = "baton_needed_replicas"


class NeededReplicas:
    """The last numbers of each router: `max by (role, model) (last_over_time(...[30s]))`."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
        """When and what each router said, by role and model."""

    def take(self, router: str, exposition: str, now: float) -> None:
        """Take the metrics of one router.

        Args:
            router: its instance id.
            exposition: in Prometheus' text format.
            now: a monotonic clock, in seconds.
        """
        lines = (line for line in exposition.splitlines() if line.startswith(f"{_METRIC}{{"))
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                pool = sample.labels["role"], sample.labels["model"]
                self._numbers.setdefault(pool, {})[router] = now, int(sample.value)

    def needed(self, role: str, model: str, now: float) -> int | None:
        """Return what the pool of a role and model needs; None: no router said so lately."""
        numbers = self._numbers.get((role, model), {})
        return max((n for at, n in numbers.values() if at > now - FRESH_SECONDS), default=None)
