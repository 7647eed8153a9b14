"""Jobs on a few threads; the first failure ends them all."""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

_TICK_SECONDS = 0.25


class ParallelJobs(Generic[T]):
    """Runs jobs in their order on daemon threads, which do not keep a process from ending.

    Args:
        jobs: each is called once, by any thread.
        width: threads.
        stop: set when a job failed, or the caller is interrupted; jobs end soon after.
    """

    def __init__(self, jobs: Sequence[Callable[[], T]], width: int, stop: Event) -> None:
        self._stop = stop
        self._results: dict[int, T] = {}
        self._errors: list[BaseException] = []
        self._lock = Lock()
        self._waiting: SimpleQueue[tuple[int, Callable[[], T]]] = SimpleQueue()
        for numbered in enumerate(jobs):
            self._waiting.put(numbered)
        self._threads = [
            Thread(target=self._work, name=f"pull-{number}", daemon=True)
            for number in range(min(width, len(jobs)))
        ]

    def run(self, tick: Callable[[], None]) -> list[T]:
        """Run all jobs; return their results in their order.

        Args:
            tick: called by this thread a few times a second.

        Raises:
            Exception: the first that a job raised, after all threads have ended.
        """
        for thread in self._threads:
            thread.start()
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(_TICK_SECONDS)
                    tick()
        except BaseException:
            self._stop.set()
            raise
        if self._errors:
            raise self._errors[0]
        return [self._results[number] for number in sorted(self._results)]

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                number, job = self._waiting.get_nowait()
            except Empty:
                return
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
                with self._lock:
                    self._errors.append(error)
                self._stop.set()
                return
            with self._lock:
                self._results[number] = result
