"""Requests that come at once begin a few at a time, in the order in which they came."""

import asyncio
from collections import deque

_CHARACTERS = 384
"""To tokenize so many takes 0.3 ms of prose, and a millisecond of digits."""


class LoopTurns:
    """Lets so many through in one turn of the event loop; the others wait for the next ones.

    Each takes about half a millisecond to begin, and longer with a longer text, which counts as
    several. If all of a large burst began in one turn, no stream would get a token, and no earlier
    request its placement, until the last was tokenized: the loop looks at its sockets after some of
    them instead.

    Args:
        per_turn: how many begin in one turn; one of them in any case.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._next: asyncio.Handle | None = None

    async def wait(self, characters: int = 0) -> None:
        """Return when it is the caller's turn: at once, where few came before in this one.

        Args:
            characters: that it tokenizes then.
        """
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.call_soon(self._turn)
        cost = min(self._per_turn, 1 + characters // _CHARACTERS)
        if cost <= self._left and not self._waiting:
            self._left -= cost
            return
        mine = loop.create_future()
        self._waiting.append((cost, mine))
        await mine

    def _turn(self) -> None:
        self._next = None
        self._left = self._per_turn
        while self._waiting:
            cost, mine = self._waiting[0]
            if not mine.done():  # its caller is there
                if cost > self._left:
                    break
                mine.set_result(None)
                self._left -= cost
            self._waiting.popleft()
        if self._left < self._per_turn:
            self._next = asyncio.get_running_loop().call_soon(self._turn)
