"""Executions that clients claim by an id: of two requests with the same one, one runs."""

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
    """It has ended."""


class RequestClaim:
    """One execution of a request whose client claims it."""

    __slots__ = ("execution", "key", "on_superseded", "take_over")

    def __init__(self, key: bytes, take_over: bool) -> None:
        self.key = key
        """Of the tenant, the execution id, and the prompt of those of one body."""
        self.execution = next(_executions)
        """Of this one, unlike all others of the cluster."""
        self.take_over = take_over
        """It replaces an earlier execution, wherever that runs."""
        self.on_superseded: Callable[[BatonError], None] = _ignore
        """Called when another one has taken over, while it runs."""


class Claims:
    """The executions of this frontend. Lives on the event loop; bounded by `ExecutionTable`.

    What runs at other frontends is known to the router that a claim goes to with its placement.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._table: ExecutionTable[RequestClaim] = ExecutionTable()
        self._running: dict[int, RequestClaim] = {}

    def begin(self, request: GenerationRequest, tenant: str) -> RequestClaim | None:
        """Note that a request runs; None where it claims no execution.

        Args:
            request: what runs. Where it takes over, an earlier execution ends instead of this one
                being refused.
            tenant: whose it is.

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
        """Note that an execution ended: `finished`, or before."""
        self._running.pop(claim.execution, None)
        claim.on_superseded = _ignore  # its id is remembered for a while, and nothing else of it
        self._table.end(claim.key, claim.execution, self._clock(), finished=finished)

    def supersede(self, execution: int) -> None:
        """End an execution: another one has taken over. An unknown one has ended."""
        claim = self._running.pop(execution, None)
        if claim is not None:
            claim.on_superseded(
                BatonError(Reason.ABORTED, "a later call with this request's id took over")
            )
