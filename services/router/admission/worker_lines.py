"""The waiting line of each worker, as far as this router placed it, and the order within it."""

from bisect import insort
from collections.abc import Mapping
from itertools import takewhile

from services.router.policy.costs import PromptTurn

_SLACK_SECONDS = 1e-3
"""Tolerance: reports count whole tokens."""


class WorkerLines:
    """Prompts that were placed and have not begun, by worker. Owned by one event loop.

    A worker computes the highest class first, and of it the lowest key, to its end. No report says
    when a prompt begins: once a worker has less left to compute than its line, the first one of the
    line has begun.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[tuple[int, float], float]]] = {}
        """(class and key, seconds) by worker, in order."""

    def __len__(self) -> int:
        """Return the number of prompts that have not begun."""
        return sum(map(len, self._lines.values()))

    def workers(self) -> list[str]:
        """Return the workers with waiting prompts."""
        return list(self._lines)

    def add(self, worker_id: str, key: float, seconds: float, rank: int = 0) -> None:
        """Record that a prompt was placed, with its key and the rank of its class."""
        insort(self._lines.setdefault(worker_id, []), ((rank, key), seconds))

    def observe(self, queue_seconds: Mapping[str, float]) -> None:
        """Remove prompts that have begun, and workers that left.

        Args:
            queue_seconds: by worker, seconds of queued computation.
        """
        for worker_id, line in list(self._lines.items()):
            left = queue_seconds.get(worker_id, 0.0) + _SLACK_SECONDS
            waiting = sum(seconds for _, seconds in line)
            begun = 0
            while begun < len(line) and left < waiting:
                waiting -= line[begun][1]
                begun += 1
            if begun == len(line):
                del self._lines[worker_id]
            else:
                del line[:begun]

    def turn(self, worker_id: str, key: float, planned: float, rank: int = 0) -> PromptTurn:
        """Return when a prompt's turn would come at a worker.

        Args:
            worker_id: the worker.
            key: of the prompt.
            planned: seconds of prompts ahead of it that are not placed yet.
            rank: of its class. Prompts of lower ones are no part of what the worker has to compute
                before it.
        """
        later = [
            seconds
            for (of, _), seconds in takewhile(
                lambda one: one[0] > (rank, key), reversed(self._lines.get(worker_id, ()))
            )
            if of == rank
        ]
        return PromptTurn(planned - sum(later), len(later))
