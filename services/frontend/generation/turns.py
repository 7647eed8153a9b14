"""Start simultaneous requests a few at a time, in the order of arrival."""

import asyncio
from collections import deque

_CHARACTERS = 384
"""Characters that take 0.3 ms to tokenize for prose, and a millisecond for digits."""


class LoopTurns:
    """Lets a number of callers through per turn of the event loop; the others wait for later turns.

    A request takes about half a millisecond to begin, and longer with a longer text, which counts
    as several. If all requests of a large burst began in one turn, no stream would get a token, and
    no earlier request its placement, until the last was tokenized. Instead, the loop handles its
    sockets after some of them.

    Args:
        per_turn: how many begin in one turn; at least one does.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._next: asyncio.Handle | None = None

    async def wait(self, characters: int = 0) -> None:
        """Return when it is the caller's turn: immediately, if few came before in this loop turn.

        Args:
            characters: how many characters the caller tokenizes next.
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
            if not mine.done():  # the caller still waits
                if cost > self._left:
                    break
                mine.set_result(None)
                self._left -= cost
            self._waiting.popleft()
        if self._left < self._per_turn:
            self._next = asyncio.get_running_loop().call_soon(self._turn)
