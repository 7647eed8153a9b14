"""Executions under ids chosen by clients: running ones, and those that ended a moment ago."""

from collections import OrderedDict
from typing import NamedTuple

from baton.request.executions import MAX_EXECUTIONS, ExecutionTable


class ExecutionClaim(NamedTuple):
    """The claim of one execution on a key."""

    key: bytes
    execution: int
    """The same in all queries of one execution."""
    take_over: bool = False
    """Supersede a running execution, instead of being rejected."""


class Executions:
    """One execution per claim, alive while it has tickets. Pure: time is an argument.

    Bounded: beyond `MAX_EXECUTIONS` tickets the oldest is forgotten, and its claim as soon as
        another
    execution claims the key.
    """

    def __init__(self) -> None:
        self._table: ExecutionTable[int] = ExecutionTable()
        self._tickets: OrderedDict[str, tuple[int, bytes, int]] = OrderedDict()
        """Session, key and execution by ticket."""

    def __len__(self) -> int:
        """Return the number of running executions."""
        return len(self._table)

    def check(self, claim: ExecutionClaim, now: float) -> None:
        """Check that no other execution has this claim's key, unless it takes over.

        Raises:
            BatonError: ALREADY_EXISTS.
        """
        if not claim.take_over:
            self._table.check(claim.key, claim.execution, now)

    def begin(self, claim: ExecutionClaim, session: int, ticket: str) -> tuple[int, int] | None:
        """Record that a claim was placed; return the session and execution that it superseded."""
        if len(self._tickets) >= MAX_EXECUTIONS:
            _, (_, key, execution) = self._tickets.popitem(last=False)
            self._table.end(key, execution, 0.0, finished=False)
        self._tickets[ticket] = session, claim.key, claim.execution
        replaced = self._table.begin(claim.key, claim.execution, session)
        return None if replaced is None else (replaced[1], replaced[0])

    def end_ticket(self, session: int, ticket: str, now: float, *, finished: bool) -> None:
        """Record that a ticket was returned, of a request that finished or did not."""
        known = self._tickets.get(ticket)
        if known is not None and known[0] == session:
            del self._tickets[ticket]
            self._table.end(known[1], known[2], now, finished=finished)

    def end_session(self, session: int) -> None:
        """Forget the executions of a session."""
        for ticket in [one for one, known in self._tickets.items() if known[0] == session]:
            del self._tickets[ticket]
        self._table.end_owner(session)
