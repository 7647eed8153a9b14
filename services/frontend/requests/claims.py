"""Ids that clients give their requests: two of the same id are one, which runs once."""

import secrets
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from time import monotonic

from baton.errors import BatonError, Reason
from baton.executions import ExecutionTable
from services.frontend.requests.digest import digest_of
from services.frontend.requests.request import ResolvedRequest
from services.frontend.requests.request_id import IdSource

_KEY_BYTES = 16
_executions = count(secrets.randbits(62))


def _ignore(_: BatonError) -> None:
    """It has ended."""


class Claim:
    """One execution of a request whose client gave it an id."""

    __slots__ = ("execution", "key", "on_superseded", "take_over")

    def __init__(self, key: bytes, take_over: bool) -> None:
        self.key = key
        """Of tenant and id."""
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
        self._table: ExecutionTable[Claim] = ExecutionTable()
        self._running: dict[int, Claim] = {}

    def begin(self, request: ResolvedRequest, source: IdSource, take_over: bool) -> Claim | None:
        """Note that a request runs; None where the frontend drew its id.

        Args:
            request: what runs.
            source: where its id comes from. Proxies and callers put one `x-request-id` on several
                requests: there the content is part of the id.
            take_over: end an earlier execution instead of being refused.

        Raises:
            BatonError: ALREADY_EXISTS.
        """
        if source is IdSource.DRAWN:
            return None
        key = sha256(f"{request.context.tenant}\0{request.id}".encode())
        if source is IdSource.HEADER:
            key.update(digest_of(request))
        claim = Claim(key.digest()[:_KEY_BYTES], take_over)
        if not take_over:
            self._table.check(claim.key, claim.execution, self._clock())
        replaced = self._table.begin(claim.key, claim.execution, claim)
        self._running[claim.execution] = claim
        if replaced is not None:
            self.supersede(replaced[0])
        return claim

    def end(self, claim: Claim, *, finished: bool) -> None:
        """Note that an execution ended: `finished`, or before."""
        self._running.pop(claim.execution, None)
        claim.on_superseded = _ignore  # its id is remembered for a while, and nothing else of it
        self._table.end(claim.key, claim.execution, self._clock(), finished=finished)

    def supersede(self, execution: int) -> None:
        """End an execution: another one has taken over. An unknown one has ended."""
        claim = self._running.pop(execution, None)
        if claim is not None:
            claim.on_superseded(
                BatonError(Reason.ABORTED, "a later call with the id of this request took over")
            )
