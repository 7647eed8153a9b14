"""The runner of a frontend: fills its places with lines, and checks and ends batches."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from baton.batches.lines import LineStore
from baton.batches.records import VALIDATING, ActiveBatch, BatchLease, ClaimedLine
from baton.batches.store import BatchStore
from baton.errors import BatonError
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger
from services.frontend.metrics import LINES_RUNNING
from services.frontend.openai.batches.checking.input import InputCheck
from services.frontend.openai.batches.running.deadlines import DeadlineWatch
from services.frontend.openai.batches.running.ending import BatchEnding
from services.frontend.openai.batches.running.line import LineRunner
from services.frontend.openai.batches.running.shares import allocate
from services.frontend.placement.line_room import LineRoom

_TICK_SECONDS = 0.5
_LEAST_SECONDS = 0.02
"""Between two claims: lines that end at about the same time are one."""
_BATCHES_AT_ONCE = 2
_RETRY_SECONDS = 2.0
_RENEWALS = 3
"""Of a lease."""

log = get_logger(__name__)


class RunningLine(NamedTuple):
    """A line that runs here."""

    line: ClaimedLine
    task: asyncio.Task[None]
    urgent: bool
    began: float
    """By the loop's clock."""


class BatchRunner:
    """Claims and runs, until it hands over. One per frontend, on the event loop.

    Args:
        batches: the store.
        lines: the store of their lines.
        line_runner: runs a line.
        check: of inputs.
        ending: of batches.
        deadlines: how many lines of a batch are urgent.
        room: of lines at once; urgent ones are not counted in it.
        is_away: whether lines that name a model would only wait; they are not claimed.
    """

    def __init__(
        self,
        batches: BatchStore,
        lines: LineStore,
        line_runner: LineRunner,
        check: InputCheck,
        ending: BatchEnding,
        deadlines: DeadlineWatch,
        room: LineRoom,
        is_away: Callable[[str], bool],
    ) -> None:
        self._batches = batches
        self._lines = lines
        self._line_runner = line_runner
        self._check = check
        self._ending = ending
        self._deadlines = deadlines
        self._room = room
        room.on_more = self._fill_soon
        self._is_away = is_away
        self._running: dict[tuple[UUID, int], RunningLine] = {}
        self._counts: Counter[UUID] = Counter()
        self._urgent: Counter[UUID] = Counter()
        """Running lines by batch: all, and those that are urgent."""
        self._held: dict[UUID, tuple[BatchLease, asyncio.Task[None]]] = {}
        """Batches that are checked or ended here."""
        self._active: list[ActiveBatch] = []
        self._empty: set[UUID] = set()
        """Batches that had no line to claim at the last look."""
        self._woken = asyncio.Event()
        self._ticking = asyncio.Lock()
        self._draining = False
        self._looked_at = self._renewed_at = 0.0

    def wake(self) -> None:
        """Look for work at once."""
        self._looked_at = 0.0
        self._woken.set()

    def _fill_soon(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Claim and run until cancelled."""
        while not self._draining:
            self._woken.clear()
            if self._batches.available:
                try:
                    async with self._ticking:
                        await self._tick()
                except BatonError as error:
                    log.warning("batches.runner.failed", error=error.message)
            await asyncio.sleep(_LEAST_SECONDS)
            try:
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def hand_over(self) -> None:
        """Stop, and give back what other frontends can run."""
        self._draining = True
        async with self._ticking:  # what it claims now is here
            pass
        lines = [one.line for one in self._running.values()]
        leases = [lease for lease, _ in self._held.values()]
        await self.close()
        await asyncio.gather(*map(self._give_back, lines))
        try:
            for lease in leases:
                await self._batches.release(lease)
        except BatonError as error:  # the leases end by themselves
            log.warning("batches.runner.failed", error=error.message)

    async def close(self) -> None:
        """Cancel all; their leases end by themselves."""
        self._draining = True
        lines = [one.task for one in self._running.values()]
        await cancel_all((*lines, *(task for _, task in self._held.values())))

    async def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= self._lines.lease_seconds / _RENEWALS:
            self._renewed_at = now
            await self._renew()
        if now - self._looked_at >= _TICK_SECONDS:
            self._looked_at = now
            await self._look()
        await self._fill()
        self._hurry(now)

    async def _look(self) -> None:
        """Find out which batches run, and take some to check or to end."""
        await self._batches.expire()
        while len(self._held) < _BATCHES_AT_ONCE and not self._draining:
            lease = await self._batches.claim()
            if lease is None:
                break
            work = self._check if lease.batch.status == VALIDATING else self._ending
            task = start_background(self._work(lease, work.run(lease)), "batch")
            self._held[lease.batch.id] = (lease, task)
        self._active = await self._lines.active()
        self._empty.clear()
        going_on = {batch.id for batch in self._active}
        for one in list(self._running.values()):
            if one.line.batch.id not in going_on:
                one.task.cancel()  # cancelled, expired or deleted: `_serve` gives it back

    async def _fill(self) -> None:
        """Claim lines for all free places."""
        while (free := self._free_places()) > 0 and not self._draining:
            running = Counter(one.line.batch.tenant for one in self._running.values())
            away = {model for model in {one.model for one in self._active} if self._is_away(model)}
            batches = [
                batch
                for batch in self._active
                if batch.id not in self._empty and batch.model not in away
            ]
            weights = {batch.tenant: self._line_runner.weight(batch.key) for batch in batches}
            wanted = allocate(free, batches, running, weights)
            if not wanted:
                return
            for batch, count in wanted.items():
                claimed = await self._lines.claim(batch, count)
                if len(claimed) < count:
                    self._empty.add(batch.id)
                for line in claimed:
                    self._start(line)

    def _free_places(self) -> int:
        """Return how many more lines may run; urgent ones take no room of class batch."""
        running = len(self._running)
        ordinary = running - self._urgent.total()
        return min(self._room.lines - ordinary, self._room.most - running)

    def _hurry(self, now: float) -> None:
        """Begin lines again as urgent ones that got no room in their class for too long."""
        for key, one in list(self._running.items()):
            batch = key[0]
            if one.urgent or not self._lacks_urgent(batch, 0):
                continue
            if now - one.began > self._deadlines.patience(batch):
                one.task.cancel()
                self._forget(key)
                self._start(one.line, after=one.task)

    def _lacks_urgent(self, batch: UUID, more: int) -> bool:
        """Return whether too few lines of a batch are urgent, with so many more running."""
        wanted = self._deadlines.urgent_lines(batch, self._counts[batch] + more)
        return self._urgent[batch] < wanted

    def _start(self, line: ClaimedLine, after: asyncio.Task[None] | None = None) -> None:
        """Run a line, once a task has ended."""
        key = line.batch.id, line.number
        urgent = self._lacks_urgent(line.batch.id, 1)
        task = start_background(self._serve(line, urgent, after), "batch line")
        now = asyncio.get_running_loop().time()
        if key in self._running:  # its lease had ended, and it was claimed again
            self._forget(key)
        self._running[key] = RunningLine(line, task, urgent, now)
        self._counts[line.batch.id] += 1
        self._urgent[line.batch.id] += urgent
        LINES_RUNNING.set(len(self._running))

    def _forget(self, key: tuple[UUID, int]) -> None:
        """Remove a line from those that run."""
        one, batch = self._running.pop(key), key[0]
        self._urgent[batch] -= one.urgent
        self._counts[batch] -= 1
        if not self._counts[batch]:
            del self._counts[batch], self._urgent[batch]
        LINES_RUNNING.set(len(self._running))

    async def _serve(
        self, line: ClaimedLine, urgent: bool, after: asyncio.Task[None] | None
    ) -> None:
        key = line.batch.id, line.number
        try:
            if after is not None:
                await asyncio.wait([after])
            await self._line_runner.run(line, urgent=urgent)
        except BatonError as error:  # the lease ends by itself
            log.warning("batches.runner.failed", error=error.message)
        except asyncio.CancelledError:
            if not self._draining and self._is_own(key):
                await self._give_back(line)
            raise
        finally:
            if self._is_own(key):
                self._forget(key)
            self._woken.set()

    def _is_own(self, key: tuple[UUID, int]) -> bool:
        """Return whether the current task runs a line: another one may have begun it again."""
        known = self._running.get(key)
        return known is not None and known.task is asyncio.current_task()

    async def _give_back(self, line: ClaimedLine) -> None:
        try:
            await self._lines.release(line, failed=False)
        except BatonError as error:  # the lease ends by itself
            log.warning("batches.runner.failed", error=error.message)

    async def _work(self, lease: BatchLease, work: Awaitable[None]) -> None:
        """Check or end a batch."""
        try:
            await work
        except BatonError as error:
            log.warning("batches.runner.failed", error=error.message)
            await self._batches.release(lease, _RETRY_SECONDS)
        finally:
            self._held.pop(lease.batch.id, None)
            self.wake()

    async def _renew(self) -> None:
        if self._running:
            running = list(self._running.values())
            valid = await self._lines.renew([one.line for one in running])
            for one in running:
                if (one.line.batch.id, one.line.number) not in valid:
                    one.task.cancel()
        for lease, task in list(self._held.values()):
            if not await self._batches.renew(lease):
                task.cancel()
