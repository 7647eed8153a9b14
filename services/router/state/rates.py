"""How fast each worker is: learned from its reports, estimated from its peers until it has some.

Workers report moving averages of their own, and 0 for what they don't know yet. An unknown rate
is the median over workers of the same layout that know theirs, and a cautious constant where none
does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from baton.internal.v1 import worker_pb2

PREFILL_TOKENS_PER_SECOND = 1_000.0
DECODE_STEP_SECONDS = 0.02
REMOTE_BYTES_PER_SECOND = 1e9
"""Between stores; a byte stream over gRPC on one host was measured at 1.6–2.1e9."""
LOCAL_BYTES_PER_SECOND = 5e9
"""Out of shared memory by a busy thread; 9–12e9 when nothing else runs."""

_NEW_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class WorkerRates:
    """What a worker is expected to do."""

    prefill_tokens_per_second: float = PREFILL_TOKENS_PER_SECOND
    decode_step_seconds: float = DECODE_STEP_SECONDS
    remote_bytes_per_second: float = REMOTE_BYTES_PER_SECOND
    local_bytes_per_second: float = LOCAL_BYTES_PER_SECOND


@dataclass(slots=True)
class _Observed:
    layout_id: bytes
    prefill: float = 0.0
    step: float = 0.0
    fetch: float = 0.0


class RateEstimator:
    """Rates by worker, as observed or estimated. One loop owns it."""

    def __init__(self) -> None:
        self._observed: dict[str, _Observed] = {}

    def observe(self, worker_id: str, layout_id: bytes, report: worker_pb2.LoadReport) -> None:
        """Take in a report; a new value counts half, what was known before the other half."""
        known = self._observed.get(worker_id)
        if known is None or known.layout_id != layout_id:
            known = self._observed[worker_id] = _Observed(layout_id)
        known.prefill = _blend(known.prefill, report.prefill_tokens_per_second)
        known.step = _blend(known.step, report.decode_step_seconds)
        known.fetch = _blend(known.fetch, report.fetch_bytes_per_second)

    def remove_worker(self, worker_id: str) -> None:
        """Forget a worker that left the cluster."""
        self._observed.pop(worker_id, None)

    def rates(self, worker_id: str, layout_id: bytes) -> WorkerRates:
        """Return the rates to expect of a worker, whether or not it has reported any."""
        known = self._observed.get(worker_id) or _Observed(layout_id)
        peers = [p for p in self._observed.values() if p.layout_id == layout_id]
        fetch = known.fetch or _median((p.fetch for p in peers), REMOTE_BYTES_PER_SECOND)
        return WorkerRates(
            known.prefill or _median((p.prefill for p in peers), PREFILL_TOKENS_PER_SECOND),
            known.step or _median((p.step for p in peers), DECODE_STEP_SECONDS),
            # Reports don't tell transports apart and count waiting for blocks still being computed:
            # shared memory is never slower than known to be, and remote never as fast as it.
            min(max(fetch, REMOTE_BYTES_PER_SECOND / 8), LOCAL_BYTES_PER_SECOND / 2),
            max(fetch, LOCAL_BYTES_PER_SECOND),
        )


def _blend(known: float, reported: float) -> float:
    if not 0 < reported < float("inf"):
        return known
    return reported if not known else known + _NEW_WEIGHT * (reported - known)


def _median(values: Iterable[float], default: float) -> float:
    positive = [value for value in values if value]
    return median(positive) if positive else default
