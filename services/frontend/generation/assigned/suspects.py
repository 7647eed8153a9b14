"""Requests that may crash workers: suspect after one lost worker, rejected after two."""

from collections.abc import Callable
from time import monotonic

from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from services.frontend.metrics import POISON_REQUESTS
from services.frontend.requests.digest import digest_of
from services.frontend.requests.request import ResolvedRequest

REFUSE_SECONDS = 600
"""How long a request stays suspect, or rejected."""
MAX_REMEMBERED = 4096
"""Most suspects, and most rejected requests; the oldest is dropped."""

log = get_logger(__name__)


class Suspects:
    """Tracks requests by digest. Runs on the event loop.

    When a worker is lost, each request that it was computing becomes *suspect*. A suspect that
    continues, or is sent again, starts only while no other suspect runs unproven. If a second
    worker is then lost before the suspect is proven, that request is the cause, not the others that
    ran with it. From then on every frontend rejects it.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start empty; `clock` is in seconds."""
        self.on_refused: Callable[[bytes], None] = lambda _: None
        """Called with the digest of each newly rejected request."""
        self._clock = clock
        self._suspect: dict[bytes, float] = {}
        """Expiry of each suspect, the next first."""
        self._refused: dict[bytes, float] = {}

    def check(self, request: ResolvedRequest) -> bool:
        """Return whether a new request is suspect.

        Raises:
            BatonError: POISON_REQUEST.
        """
        if not (self._suspect or self._refused):
            return False
        now = self._clock()
        _forget(self._suspect, now)
        _forget(self._refused, now)
        digest = digest_of(request)
        if digest in self._refused:
            raise poison_request()
        return digest in self._suspect

    def suspect(self, request: ResolvedRequest) -> None:
        """Mark a request suspect: a worker was lost while computing it."""
        _remember(self._suspect, digest_of(request), self._clock() + REFUSE_SECONDS)

    def clear(self, request: ResolvedRequest) -> None:
        """Clear a suspect: a worker computed it since without a crash."""
        self._suspect.pop(digest_of(request), None)

    def refuse(self, request: ResolvedRequest, worker: str) -> None:
        """Reject a request from now on: it was the only suspect when a second worker was lost."""
        digest = digest_of(request)
        POISON_REQUESTS.inc()
        log.error(
            "request.poison.detected",
            tenant=request.context.tenant,
            model=request.model.name,
            digest=digest.hex(),
            peer=worker,
        )
        self.add_refused(digest)
        self.on_refused(digest)

    def add_refused(self, digest: bytes) -> None:
        """Reject what another frontend rejects."""
        self._suspect.pop(digest, None)
        _remember(self._refused, digest, self._clock() + REFUSE_SECONDS)

    def lift(self, digest: bytes) -> None:
        """Stop rejecting a request."""
        self._refused.pop(digest, None)


def poison_request() -> BatonError:
    """Return the error of a request that crashes workers."""
    return BatonError(
        Reason.POISON_REQUEST,
        "two workers were lost while they computed this request; it is rejected for "
        f"{REFUSE_SECONDS // 60} minutes",
    )


def _remember(known: dict[bytes, float], digest: bytes, until: float) -> None:
    known.pop(digest, None)
    if len(known) >= MAX_REMEMBERED:
        del known[next(iter(known))]
    known[digest] = until


def _forget(known: dict[bytes, float], now: float) -> None:
    while known and known[next(iter(known))] <= now:
        del known[next(iter(known))]
