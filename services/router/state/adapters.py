"""Which workers have an adapter in memory, and what it would take the others to load it. Pure."""

from collections import OrderedDict
from collections.abc import Iterable

from services.router.state.instances import LoadReport

DEFAULT_LOAD_SECONDS = 0.1
"""Time to load an adapter on a worker that has not measured it."""
_ASSUMED_SECONDS = 2.0
"""How long a worker is assumed to load what was placed there, while its reports do not name it."""
_MAX_ASSUMED = 4096


class AdapterLoads:
    """Adapters that are loaded, or about to be: by reports, and by placements since."""

    def __init__(self) -> None:
        self._assumed: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        """Until when workers are assumed to load an adapter, the oldest placement first."""

    def placed(self, worker_ids: Iterable[str], digest: bytes, now: float) -> None:
        """Record that workers were sent a request for an adapter."""
        for worker_id in worker_ids:
            self._assumed[worker_id, digest] = now + _ASSUMED_SECONDS
            self._assumed.move_to_end((worker_id, digest))
        while len(self._assumed) > _MAX_ASSUMED:
            self._assumed.popitem(last=False)

    def seconds(self, report: LoadReport | None, digest: bytes, now: float) -> float:
        """Return the seconds that a worker would take to load an adapter; 0: it has it.

        Args:
            report: the worker's last one; None: it has not reported, and cannot be compared.
            digest: of the adapter.
            now: a monotonic clock, in seconds.
        """
        if report is None or not report.adapter_slots or digest in report.resident_adapters:
            return 0.0
        if self._assumed.get((report.worker_id, digest), 0.0) > now:
            return 0.0
        return report.adapter_load_seconds or DEFAULT_LOAD_SECONDS
