"""Executions that clients claim by an id: of two requests with the same id, one runs."""

import secrets
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from time import monotonic

from baton.errors import BatonError, Reason
from baton.request.executions import ExecutionTable
from services.frontend.requests.request import GenerationRequest

_KEY_BYTES = 16
_executions = count(secrets.randbits(62))


def _ignore(_: BatonError) -> None:
    """Ignore that an execution was superseded: it has ended."""


class RequestClaim:
    """One execution of a request whose client claims it."""

    __slots__ = ("execution", "key", "on_superseded", "take_over")

    def __init__(self, key: bytes, take_over: bool) -> None:
        self.key = key
        """The tenant, the execution id, and the index of the prompt among those of one body."""
        self.execution = next(_executions)
        """Identifies this execution among all executions of the cluster."""
        self.take_over = take_over
        """Whether the execution replaces an earlier one, wherever that runs."""
        self.on_superseded: Callable[[BatonError], None] = _ignore
        """Called when another execution takes over while this one runs."""


class Claims:
    """The executions of this frontend. Runs on the event loop; bounded by `ExecutionTable`.

    The router that places a request knows what runs on other frontends; a claim is sent to it with
    the placement.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._table: ExecutionTable[RequestClaim] = ExecutionTable()
        self._running: dict[int, RequestClaim] = {}

    def begin(self, request: GenerationRequest, tenant: str) -> RequestClaim | None:
        """Record that a request starts to run. None: it claims no execution.

        Args:
            request: the request. If it takes over, an earlier execution ends; otherwise this
                request is rejected.
            tenant: the tenant of the request.

        Raises:
            BatonError: ALREADY_EXISTS.
        """
        if not request.execution_id:
            return None
        key = sha256(f"{tenant}\0{request.execution_id}\0{request.prompt_index}".encode())
        claim = RequestClaim(key.digest()[:_KEY_BYTES], request.take_over)
        if not claim.take_over:
            self._table.check(claim.key, claim.execution, self._clock())
        replaced = self._table.begin(claim.key, claim.execution, claim)
        self._running[claim.execution] = claim
        if replaced is not None:
            self.supersede(replaced[0])
        return claim

    def end(self, claim: RequestClaim, *, finished: bool) -> None:
        """Record that an execution ended: `finished`, or earlier."""
        self._running.pop(claim.execution, None)
        claim.on_superseded = _ignore  # only its id is kept, for a while
        self._table.end(claim.key, claim.execution, self._clock(), finished=finished)

    def supersede(self, execution: int) -> None:
        """End an execution because another one has taken over; no effect if it has ended."""
        claim = self._running.pop(execution, None)
        if claim is not None:
            claim.on_superseded(
                BatonError(Reason.ABORTED, "a later call with this request's id took over")
            )
