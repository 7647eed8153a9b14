"""Requests that workers were lost of: suspect after one, refused after two."""

from collections.abc import Callable
from time import monotonic

from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from services.frontend.metrics import POISON_REQUESTS
from services.frontend.requests.digest import digest_of
from services.frontend.requests.request import ResolvedRequest

REFUSE_SECONDS = 600
"""How long a request is suspect, or refused."""
MAX_REMEMBERED = 4096
"""Suspects, and as many that are refused; the oldest goes."""

log = get_logger(__name__)


class Suspects:
    """Remembers requests by digest. Lives on the event loop.

    When a worker is lost, each request that it computed is *suspect*: where it goes on, and where
    the same is asked again, it begins while no other suspect is unproven. So if a second worker is
    lost before a suspect is proven, it is that one, and nothing that ran beside it. It is refused
    from then on, by every frontend.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Remember nothing yet; `clock` is in seconds."""
        self.on_refused: Callable[[bytes], None] = lambda _: None
        """Is given the digest of each request that is refused from now on."""
        self._clock = clock
        self._suspect: dict[bytes, float] = {}
        """When each is forgotten, the next first."""
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
        """Remember that a worker was lost while it computed a request."""
        _remember(self._suspect, digest_of(request), self._clock() + REFUSE_SECONDS)

    def clear(self, request: ResolvedRequest) -> None:
        """Forget that: it was computed since, and nothing happened."""
        self._suspect.pop(digest_of(request), None)

    def refuse(self, request: ResolvedRequest, worker: str) -> None:
        """Refuse a request from now on: it was alone suspect when a second worker was lost."""
        digest = digest_of(request)
        POISON_REQUESTS.inc()
        log.error(
            "request.poison",
            tenant=request.context.tenant,
            model=request.model.name,
            digest=digest.hex(),
            peer=worker,
        )
        self.add_refused(digest)
        self.on_refused(digest)

    def add_refused(self, digest: bytes) -> None:
        """Refuse what another frontend does."""
        self._suspect.pop(digest, None)
        _remember(self._refused, digest, self._clock() + REFUSE_SECONDS)

    def lift(self, digest: bytes) -> None:
        """Refuse a request no longer."""
        self._refused.pop(digest, None)


def poison_request() -> BatonError:
    """Return the error of a request that workers were lost of."""
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
