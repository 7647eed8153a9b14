"""Metrics of lines: few tenants have their own, and those without batches have none."""

from uuid import UUID

from baton.batches.line_rate import BatchWork
from baton.batches.metrics import LineMetrics
from baton.telemetry.scope import TelemetryScope


def work(tenant: str, left: int, done: int, failed: int = 0, since: float = 9.0) -> BatchWork:
    return BatchWork(tenant, UUID(int=1), left, done, failed, since)


def test_lines_are_counted_by_state_and_for_the_tenants_that_have_most() -> None:
    scope = TelemetryScope("frontend", "frontend-0")

    def sample(state: str, tenant: str) -> float | None:
        labels = {"state": state, "tenant": tenant}
        return scope.registry.get_sample_value("baton_batch_lines_by_tenant", labels)

    with scope.entered():
        metrics = LineMetrics(1)
        metrics.update([work("a", 5, 2), work("b", 9, 3, 1, 4.0), work("c", 1, 1), work("b", 1, 0)])
        assert (sample("open", "b"), sample("completed", "b"), sample("failed", "b")) == (10, 2, 1)
        assert (sample("open", "other"), sample("completed", "other")) == (6, 3)
        assert scope.registry.get_sample_value("baton_batch_oldest_timestamp_seconds") == 4.0
        metrics.update([work("a", 4, 3)])
        found = [sample("open", tenant) for tenant in ("a", "b", "other")]
        assert found == [4, None, None]
        metrics.update([])
        assert sample("open", "a") is None
        assert scope.registry.get_sample_value("baton_batch_oldest_timestamp_seconds") == 0.0
