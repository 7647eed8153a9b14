"""Log lines of failed placements: few, however many requests an overloaded router rejects."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from baton.errors import BatonError
from baton.telemetry.logs import get_logger

LINE_SECONDS = 1.0
MAX_KINDS = 256
"""Most kinds counted between two lines: clients choose the names of models."""
_MOST = 16
"""Most kinds that a line names."""

log = get_logger(__name__)


class RefusalKind(NamedTuple):
    """The key that rejections are counted by."""

    reason: str
    model: str
    priority_class: str
    tenant: str


class RefusalLog:
    """Logs one failed placement per second in full, and a line with the number of the others.

    Each request has its own line at its frontend, with the reason. Lives on the event loop.

    Args:
        loop: returns the loop for timers.
    """

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._counts: Counter[RefusalKind] = Counter()
        self._others = 0

    def add(self, kind: RefusalKind, request_id: str, error: BatonError) -> None:
        """Log a failed placement, now or within a second.

        Args:
            kind: of the failure.
            request_id: of the request.
            error: why it failed.
        """
        if self._timer is None:
            self._timer = self._loop().call_later(LINE_SECONDS, self._tell)
            log.info(
                "router.placement.failed",
                request_id=request_id,
                model=kind.model,
                reason=kind.reason,
                error=error.message,
            )
        elif kind in self._counts or len(self._counts) < MAX_KINDS:
            self._counts[kind] += 1
        else:
            self._others += 1

    def flush(self) -> None:
        """Log the placements that were counted."""
        if not self._counts:
            return
        counts, others = self._counts, self._others
        self._counts, self._others = Counter(), 0
        named = counts.most_common(_MOST)
        total = counts.total() + others
        log.info(
            "router.placements.failed",
            requests=total,
            counts=[
                {
                    "reason": kind.reason,
                    "model": kind.model,
                    "class": kind.priority_class,
                    "tenant": kind.tenant,
                    "requests": count,
                }
                for kind, count in named
            ],
            others=total - sum(count for _, count in named),
        )

    def _tell(self) -> None:
        self._timer = None
        self.flush()
