"""Starts and drains the workers of models that take turns."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from baton.cli.cluster.local.on_demand.room import OnDemandRoom
from baton.cli.cluster.local.on_demand.uses import UseReader
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cluster.etcd.client import EtcdError
from baton.on_demand.records import TurnWriter
from baton.on_demand.turns import NOT_USED, ModelUse, OnDemandTurns, TurnPhase
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger

PERIOD_SECONDS = 0.5
KEPT_SECONDS = 60.0
"""Longest wait until etcd keeps what clients need to know of a model that serves."""
RENEW_SECONDS = 600.0
"""Much less than the time for which models stay known by themselves."""
_POLL_SECONDS = 0.05

log = get_logger(__name__)


class StartedProcesses(Protocol):
    """What starts and stops processes: a `Supervisor`."""

    def add(self, name: str) -> bool:
        """Start a process; False: it is still being stopped."""

    def remove(self, name: str) -> None:
        """Drain a process and stop it, in the background."""

    def is_given_up(self, name: str) -> bool:
        """Return whether a process died again and again, and is not restarted."""

    async def wait_added(self, names: Iterable[str]) -> None:
        """Wait until processes that were added serve, or raise CommandError."""

    async def wait_removed(self, names: Iterable[str]) -> None:
        """Wait until processes that were removed have ended."""


class OnDemandModels:
    """Keeps the workers of some models up, as their turns say. Owned by the supervisor's task.

    Args:
        processes: starts and stops workers.
        workers: ids of each model's workers; the last `room.models` models run already.
        room: how many models have workers.
        uses: reads how models are used.
        writer: tells routers and frontends the models' states.
        is_kept: returns whether a model stays known without workers.
        renew: renews what is kept of a model.
        reporter: prints what changes.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        processes: StartedProcesses,
        workers: Mapping[str, Sequence[str]],
        room: OnDemandRoom,
        uses: UseReader,
        writer: TurnWriter,
        is_kept: Callable[[str], bool],
        renew: Callable[[str], Awaitable[None]],
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes = processes
        self._workers = dict(workers)
        self._room = room
        self._uses = uses
        self._writer = writer
        self._is_kept = is_kept
        self._renew = renew
        self._reporter = reporter
        self._clock = clock
        self._turns = OnDemandTurns(room.models, room.min_stay)
        now = clock()
        for number, model in enumerate(workers):
            runs = number >= len(workers) - room.models
            self._turns.add(model, TurnPhase.READY if runs else TurnPhase.AWAY, now)
        self._tasks: set[asyncio.Task[None]] = set()
        self._added: dict[str, tuple[float, asyncio.Future[None]]] = {}
        """Models whose first turn is awaited: since when, and what ends then."""
        self._changing: set[str] = set()
        """Models whose workers are being changed: their turn does not end meanwhile."""

    async def __aenter__(self) -> "OnDemandModels":
        self._in_background(self._writer.keep_written(), "turns-records")
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._tasks)
        await self._writer.leave()

    @property
    def running(self) -> list[str]:
        """Ids of the workers that run or start."""
        return [one for ids in self._up.values() for one in ids]

    @property
    def _up(self) -> dict[str, Sequence[str]]:
        away = TurnPhase.AWAY
        return {
            model: () if self._turns.phase(model) is away else ids
            for model, ids in self._workers.items()
        }

    async def start(self) -> None:
        """Start each model once, so that its card and its tokenizer are known; then give turns.

        The first models have their workers then.

        Raises:
            CommandError: one does not start.
        """
        names, room = list(self._workers), self._room.models
        for number in reversed(range(len(names) - room)):
            await self._until_kept(names[number + room])
            await self._end(names[number + room])
            self._turns.starting(names[number], self._clock())
            await self._begin(names[number])
        for name in names[:room]:
            await self._until_kept(name)
        self._publish()
        self._in_background(self.run(), "on-demand")
        self._in_background(self._keep_known(), "keep-known")

    async def run(self) -> NoReturn:
        """Give turns until cancelled."""
        while True:
            uses = await self._uses.read(self._up)
            for model, (since, _) in self._added.items():
                uses[model] = ModelUse(since)
            for model in self._changing:
                uses[model] = uses.get(model, NOT_USED)._replace(running=True)
            changes = self._turns.decide(uses, self._clock())
            self._publish()
            for model in self._given_up():
                self._turns.leaving(model, self._clock())
                self._in_background(self._rest(model), "end-turn")
            for model in changes.stop:
                self._in_background(self._end(model), "end-turn")
            for model in changes.start:
                self._in_background(self._try_begin(model), "begin-turn")
            await asyncio.sleep(PERIOD_SECONDS)

    async def add(self, model: str, workers: Sequence[str]) -> None:
        """Take one more model; return once its workers serve, in its first turn.

        Raises:
            CommandError: they do not start. The model is forgotten then.
        """
        self._workers[model] = workers
        now, ended = self._clock(), asyncio.get_running_loop().create_future()
        self._turns.add(model, TurnPhase.AWAY, now)
        self._added[model] = now, ended
        try:
            await ended
            await self._until_kept(model)
        except BaseException:
            self.remove(model)
            raise
        finally:
            del self._added[model]

    def require_settled(self, model: str) -> bool:
        """Return whether a model has workers.

        Raises:
            CommandError: its turn begins or ends.
        """
        phase = self._turns.phase(model)
        if phase not in (TurnPhase.AWAY, TurnPhase.READY):
            raise CommandError(f"The turn of model {model!r} begins or ends: try again after that.")
        return phase is TurnPhase.READY

    @contextmanager
    def changing(self, model: str) -> Iterator[None]:
        """Have a model's turn not end until the exit."""
        self._changing.add(model)
        try:
            yield
        finally:
            self._changing.discard(model)

    def set_workers(self, model: str, workers: Sequence[str]) -> None:
        """Take the ids of a model's workers, which run if it is its turn."""
        self._workers[model] = workers

    def leave(self, model: str) -> None:
        """Have a model get no new requests: it is about to be removed.

        Raises:
            CommandError: its turn begins or ends.
        """
        self.require_settled(model)
        self._turns.leaving(model, self._clock())
        self._publish()

    def remove(self, model: str) -> None:
        """Forget a model, whose workers have ended."""
        self._turns.remove(model)
        del self._workers[model]
        self._publish()

    async def _keep_known(self) -> NoReturn:
        """Have models stay known for as long as this runs, however seldom they have workers."""
        while True:
            for model in list(self._workers):
                try:
                    await self._renew(model)
                except (EtcdError, ValueError) as error:
                    log.warning("model.kept.not_renewed", model=model, error=str(error))
            await asyncio.sleep(RENEW_SECONDS)

    def _given_up(self) -> list[str]:
        """Return the models in their turns with a worker that is not restarted."""
        return [
            model
            for model, ids in self._workers.items()
            if self._turns.phase(model) is TurnPhase.READY
            and any(map(self._processes.is_given_up, ids))
        ]

    async def _rest(self, model: str) -> None:
        """End a turn whose workers die; the next one begins after a while."""
        await self._drain(model)
        self._turns.failed(model, self._clock())

    def _publish(self) -> None:
        self._writer.set({model: self._turns.turn(model) for model in self._workers})

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = start_background(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try_begin(self, model: str) -> None:
        """Start a model's workers; if they do not, others' turns come before it is tried again."""
        try:
            await self._begin(model)
        except CommandError as error:
            self._reporter.warn(f"Model {model} does not start: {error}")
            await self._rest(model)
            if model in self._added:
                self._added[model][1].set_exception(error)
        else:
            if model in self._added:
                self._added[model][1].set_result(None)

    async def _begin(self, model: str) -> None:
        ids = self._workers[model]
        self._reporter.info(f"Starting {', '.join(ids)} of {model}.")
        for name in ids:
            self._processes.add(name)
        await self._processes.wait_added(ids)
        self._turns.started(model, self._clock())
        self._publish()

    async def _end(self, model: str) -> None:
        self._reporter.info(f"Draining {', '.join(self._workers[model])} of {model}.")
        await self._drain(model)
        self._turns.stopped(model, self._clock())

    async def _drain(self, model: str) -> None:
        for name in self._workers[model]:
            self._processes.remove(name)
        await self._processes.wait_removed(self._workers[model])

    async def _until_kept(self, model: str) -> None:
        try:
            async with asyncio.timeout(KEPT_SECONDS):
                while not self._is_kept(model):  # noqa: ASYNC110  # changes once
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise CommandError(
                f"What clients need to know of model {model!r} was not written to etcd within "
                f"{KEPT_SECONDS:g} s: see the log of {self._workers[model][0]}.",
                EXIT_FAILED,
            ) from None
