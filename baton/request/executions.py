"""Which requests run, and which ended a moment ago: so that none runs twice.

Pure: time is an argument. Frontends have one for their own requests, routers for those of all
frontends.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from baton.errors import BatonError, Reason

REMEMBER_SECONDS = 60.0
"""How long a request that ended well is not run again."""
MAX_EXECUTIONS = 65_536
"""Of those that run, and of those that ended; the oldest is forgotten."""

O = TypeVar("O")  # noqa: E741  # an owner


@dataclass(slots=True)
class _Running(Generic[O]):
    execution: int
    owner: O


class ExecutionTable(Generic[O]):
    """Executions by the key of their request; each has an owner, whose end is theirs.

    One that failed is forgotten at its end: it may be sent again. Bounded by `limit`, twice.
    """

    def __init__(
        self, limit: int = MAX_EXECUTIONS, remember_seconds: float = REMEMBER_SECONDS
    ) -> None:
        self._limit = limit
        self._remember_seconds = remember_seconds
        self._running: OrderedDict[bytes, _Running[O]] = OrderedDict()
        self._ended: OrderedDict[bytes, float] = OrderedDict()
        """When each is forgotten, the next first."""

    def __len__(self) -> int:
        """Return the number of executions that run."""
        return len(self._running)

    def check(self, key: bytes, execution: int, now: float) -> None:
        """Check that no other execution of a request runs, or ended well a moment ago.

        Raises:
            BatonError: ALREADY_EXISTS.
        """
        known = self._running.get(key)
        if known is not None and known.execution != execution:
            raise BatonError(
                Reason.ALREADY_EXISTS, "a request with this execution id is already running"
            )
        self._forget(now)
        if key in self._ended:
            raise BatonError(
                Reason.ALREADY_EXISTS,
                "a request with this execution id ended within the last "
                f"{self._remember_seconds:g} s",
            )

    def begin(self, key: bytes, execution: int, owner: O) -> tuple[int, O] | None:
        """Note that a request runs; return the execution that it replaces, with its owner.

        The same execution may begin again: then it has this owner.
        """
        self._ended.pop(key, None)
        known = self._running.pop(key, None)
        if len(self._running) >= self._limit:
            self._running.popitem(last=False)
        self._running[key] = _Running(execution, owner)
        if known is None or known.execution == execution:
            return None
        return known.execution, known.owner

    def end(self, key: bytes, execution: int, now: float, *, finished: bool) -> None:
        """Note that an execution ended; one that was replaced is known no more."""
        known = self._running.get(key)
        if known is None or known.execution != execution:
            return
        del self._running[key]
        if finished:
            if len(self._ended) >= self._limit:
                self._ended.popitem(last=False)
            self._ended[key] = now + self._remember_seconds

    def end_owner(self, owner: O) -> None:
        """Forget what an owner ran, who is gone."""
        for key in [key for key, one in self._running.items() if one.owner == owner]:
            del self._running[key]

    def _forget(self, now: float) -> None:
        while self._ended and next(iter(self._ended.values())) <= now:
            self._ended.popitem(last=False)
