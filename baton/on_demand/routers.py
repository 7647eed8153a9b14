"""What routers' metrics say of the requests for models."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

_OLDEST = "baton_router_queue_oldest_seconds"


def oldest_waits(expositions: Iterable[str]) -> dict[str, float]:
    """Return for how long the oldest request in routers' queues waits, by model; 0: none waits.

    Args:
        expositions: of all routers, in Prometheus' text format.
    """
    found: dict[str, float] = {}
    for text in expositions:
        lines = (line for line in text.splitlines() if line.startswith(f"{_OLDEST}{{"))
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                model = sample.labels["model"]
                found[model] = max(found.get(model, 0.0), sample.value)
    return found
