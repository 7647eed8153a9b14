"""How fast each worker is: learned from its reports, estimated from its peers until it has some.

Workers report their own moving averages, and 0 for what they do not know yet. An unknown rate is
the median over workers of the same layout that know theirs, and a cautious constant if none does.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from services.router.state.instances import LoadReport

PREFILL_TOKENS_PER_SECOND = 1_000.0
DECODE_STEP_SECONDS = 0.02
REMOTE_BYTES_PER_SECOND = 1e9
"""Between stores; a byte stream over gRPC on one host was measured at 1.6–2.1e9."""
LOCAL_BYTES_PER_SECOND = 5e9
"""Out of shared memory by a busy thread; 9–12e9 when nothing else runs."""

_NEW_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes per second at which KV is expected to reach a worker."""

    remote: float = REMOTE_BYTES_PER_SECOND
    """From another store, until fetches were measured; at most half of `local` is expected."""
    local: float = LOCAL_BYTES_PER_SECOND
    """From its local store, at least."""


DEFAULT_BANDWIDTHS = Bandwidths()


class WorkerRates(NamedTuple):
    """The rates expected of a worker."""

    prefill_tokens_per_second: float = PREFILL_TOKENS_PER_SECOND
    decode_step_seconds: float = DECODE_STEP_SECONDS
    remote_bytes_per_second: float = REMOTE_BYTES_PER_SECOND
    local_bytes_per_second: float = LOCAL_BYTES_PER_SECOND


class LearnedRates(NamedTuple):
    """What one worker has learned of itself; 0: not known."""

    prefill_tokens_per_second: float = 0.0
    decode_step_seconds: float = 0.0
    prefill_samples: int = 0
    """Number of reports after which the worker knew more about its prefill rate."""


@dataclass(slots=True)
class _Observed:
    layout_id: bytes
    prefill: float = 0.0
    step: float = 0.0
    fetch: float = 0.0
    samples: int = 0
    """As `LearnedRates.prefill_samples`."""
    reported: tuple[float, int] = (0.0, 0)
    """The last report's prefill rate and pending tokens."""


class _Known:
    """The known values of one quantity among the workers of one layout.

    They are kept in order while medians are requested, so that a change costs O(log n) steps; if
    all workers know their own, none is requested, and a change costs nothing.

    Args:
        workers: the observations of each worker.
        value: reads the quantity of one worker; 0: not known.
    """

    __slots__ = ("_changes", "_ordered", "_value", "_workers")

    def __init__(
        self, workers: Mapping[str, _Observed], value: Callable[[_Observed], float]
    ) -> None:
        self._workers = workers
        self._value = value
        self._ordered: list[float] | None = None
        self._changes = 0
        """Number of changes since a median was requested."""

    def replace(self, old: float, new: float) -> None:
        """Replace a worker's old value by its new one."""
        values = self._ordered
        if values is None:
            return
        self._changes += 1
        if self._changes > len(values):
            self._ordered = None  # sorting them again costs less by now
            return
        if old:
            del values[bisect_left(values, old)]
        if new:
            insort(values, new)

    def median(self, default: float) -> float:
        self._changes = 0
        values = self._ordered
        if values is None:
            values = sorted(filter(None, map(self._value, self._workers.values())))
            self._ordered = values
        if not values:
            return default
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


class _Layout:
    """Known values of the workers of one layout."""

    __slots__ = ("fetch", "prefill", "step", "workers")

    def __init__(self) -> None:
        self.workers: dict[str, _Observed] = {}
        self.prefill = _Known(self.workers, attrgetter("prefill"))
        self.step = _Known(self.workers, attrgetter("step"))
        self.fetch = _Known(self.workers, attrgetter("fetch"))


class RateEstimator:
    """Rates by worker, as observed or estimated. Owned by one event loop.

    Args:
        bandwidths: expected bandwidths of KV transfers before any was measured.
    """

    def __init__(self, bandwidths: Bandwidths = DEFAULT_BANDWIDTHS) -> None:
        self._bandwidths = bandwidths
        self._observed: dict[str, _Observed] = {}
        self._layouts: dict[bytes, _Layout] = {}

    def observe(self, worker_id: str, layout_id: bytes, report: LoadReport) -> None:
        """Apply a report; a new value and the previous average weigh half each."""
        known = self._observed.get(worker_id)
        if known is None or known.layout_id != layout_id:
            known = self._add(worker_id, layout_id)
        layout = self._layouts[layout_id]
        new = _blend(known.prefill, report.prefill_tokens_per_second)
        if new != known.prefill:
            layout.prefill.replace(known.prefill, new)
            known.prefill = new
        reported = report.prefill_tokens_per_second, report.pending_prompt_tokens
        if reported != known.reported:
            known.reported = reported
            known.samples += known.prefill > 0
        new = _blend(known.step, report.decode_step_seconds)
        if new != known.step:
            layout.step.replace(known.step, new)
            known.step = new
        new = _blend(known.fetch, report.fetch_bytes_per_second)
        if new != known.fetch:
            layout.fetch.replace(known.fetch, new)
            known.fetch = new

    def remove_worker(self, worker_id: str) -> None:
        """Forget a worker that left the cluster."""
        known = self._observed.pop(worker_id, None)
        if known is None:
            return
        layout = self._layouts[known.layout_id]
        layout.prefill.replace(known.prefill, 0.0)
        layout.step.replace(known.step, 0.0)
        layout.fetch.replace(known.fetch, 0.0)
        del layout.workers[worker_id]
        if not layout.workers:
            del self._layouts[known.layout_id]

    def rates(self, worker_id: str, layout_id: bytes) -> WorkerRates:
        """Return the rates to expect of a worker, whether or not it has reported any."""
        known = self._observed.get(worker_id)
        if known is None or known.layout_id != layout_id:
            known = _Observed(layout_id)
        remote, local = self._bandwidths.remote, self._bandwidths.local
        prefill, step, fetch = known.prefill, known.step, known.fetch
        if not (prefill and step and fetch):
            peers = self._layouts.get(layout_id) or _Layout()
            prefill = prefill or peers.prefill.median(PREFILL_TOKENS_PER_SECOND)
            step = step or peers.step.median(DECODE_STEP_SECONDS)
            fetch = fetch or peers.fetch.median(remote)
        # Reports don't tell transports apart and count waiting for blocks still being computed:
        # shared memory is never slower than known to be, and remote never as fast as it.
        slow, fast = remote / 8, local / 2
        far = fetch if fetch > slow else slow
        return WorkerRates(prefill, step, far if far < fast else fast, max(fetch, local))

    def learned(self, worker_id: str) -> LearnedRates:
        """Return what a worker has learned, without what is estimated from its peers."""
        known = self._observed.get(worker_id)
        if known is None:
            return LearnedRates()
        return LearnedRates(known.prefill, known.step, known.samples)

    def _add(self, worker_id: str, layout_id: bytes) -> _Observed:
        self.remove_worker(worker_id)
        layout = self._layouts.get(layout_id)
        if layout is None:
            layout = self._layouts[layout_id] = _Layout()
        known = self._observed[worker_id] = layout.workers[worker_id] = _Observed(layout_id)
        return known


def _blend(known: float, reported: float) -> float:
    if not 0 < reported < float("inf"):
        return known
    return reported if not known else known + _NEW_WEIGHT * (reported - known)
