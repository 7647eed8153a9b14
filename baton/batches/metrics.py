"""Metrics of batches, which any process with their database counts."""

from collections import Counter
from collections.abc import Sequence

from baton.batches.line_rate import BatchWork
from baton.telemetry.metrics import Gauge

UNFINISHED = Gauge(
    "baton_batch_lines_unfinished",
    "Lines of the batches of the whole cluster that are in progress and have not ended, as this "
    "process counted them last.",
)
LINES = Gauge(
    "baton_batch_lines_by_tenant",
    "Lines of batches that run, in the whole cluster, by state (`open`: without a result; "
    "`completed`, `failed`) and tenant: the `teams.top` ones with most open lines; the others "
    "have `other`. Each frontend has the same.",
    ["state", "tenant"],
)
OLDEST = Gauge(
    "baton_batch_oldest_timestamp_seconds",
    "Time at which the lines of the oldest batch with open ones could run; 0: there are none. "
    "Each frontend has the same.",
)
OTHER = "other"


class LineMetrics:
    """Sets these metrics. One per frontend.

    Args:
        top: tenants with series of their own.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._shown: set[tuple[str, str]] = set()

    def update(self, work: Sequence[BatchWork]) -> None:
        """Take what the batches that run have done and have left."""
        left = Counter[str]()
        for batch in work:
            left[batch.tenant] += batch.left
        named = {tenant for tenant, _ in left.most_common(self._top)}
        counts = Counter[tuple[str, str]]()
        for batch in work:
            tenant = batch.tenant if batch.tenant in named else OTHER
            counts["open", tenant] += batch.left
            counts["completed", tenant] += batch.done - batch.failed
            counts["failed", tenant] += batch.failed
        for gone in self._shown - counts.keys():
            LINES.remove(*gone)
        for labels, count in counts.items():
            LINES.labels(*labels).set(count)
        self._shown = set(counts)
        OLDEST.set(min((batch.since for batch in work if batch.left), default=0.0))
