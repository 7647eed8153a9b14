"""Failures of the store, as errors for clients."""

from contextlib import AbstractContextManager

from baton.errors import BatonError, Reason
from baton.postgres.connecting import NoPartitionError, RefusedError, StateError
from baton.telemetry.logs import get_logger

RETRY_SECONDS = 1.0
RESPONSES = "stored responses are unavailable", "send all items with `store: false`"
COMPLETIONS = "stored chat completions are unavailable", "omit `store`"
"""What is unavailable, and what a client may do."""

log = get_logger(__name__)


class _Failures:
    """A context manager of its own kind, which costs less than a generator."""

    __slots__ = ("_what",)

    def __init__(self, what: tuple[str, str]) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, StateError):
            return
        if isinstance(error, RefusedError) and not isinstance(error, NoPartitionError):
            return
        log.warning("state.store.unavailable", error=str(error))
        raise unavailable(self._what) from error


def failures(what: tuple[str, str] = RESPONSES) -> AbstractContextManager[None]:
    """Translate errors of the database, for one of the kinds above.

    Raises:
        BatonError: UNAVAILABLE: the database is away, slow, or has no place for a row.
        RefusedError: it rejects values, which is an error of this process.
    """
    return _Failures(what)


def unavailable(what: tuple[str, str] = RESPONSES) -> BatonError:
    """Return the error of a request that needs the database while it is away."""
    said, instead = what
    return BatonError(
        Reason.UNAVAILABLE, f"{said} now: retry later, or {instead}", retry_after=RETRY_SECONDS
    )


def not_enabled(what: str) -> BatonError:
    """Return UNIMPLEMENTED: nothing is stored; `what` is asked for."""
    return BatonError(
        Reason.UNIMPLEMENTED,
        f"this cluster stores no {what}: set conversations.enabled "
        "(BATON_CONVERSATIONS_ENABLED) and state.url of the frontends",
    )


def missing(what: str, ident: str) -> BatonError:
    """Return NOT_FOUND: it never existed, is deleted, or is another project's."""
    return BatonError(Reason.NOT_FOUND, f"{what} {ident[:80]!r} does not exist")
