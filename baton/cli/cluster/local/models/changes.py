"""Models that are added to a running local cluster, removed from it, or get other workers.

A change starts workers first and drains others then, so that there are never fewer than before or
after. One that fails leaves the cluster as it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from baton.cli.cluster.local.models.find import MAX_MODELS, require_distinct, resolve
from baton.cli.cluster.local.models.local_model import ROLES, LocalModel, checked
from baton.cli.cluster.local.models.memory import machine_memory, require_memory
from baton.cli.cluster.local.models.streams import streams_of
from baton.cli.cluster.local.models.workers import share_cores, worker_specs
from baton.cli.cluster.local.on_demand.models import OnDemandModels
from baton.cli.cluster.local.on_demand.room import OnDemandRoom, largest
from baton.cli.cluster.local.output.running_requests import read_metrics
from baton.cli.cluster.local.preparation import Preparation, PreparedProcess
from baton.cli.cluster.local.processes.supervisor import Supervisor
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import ClusterOptions
from baton.cluster.etcd.client import EtcdError
from baton.settings import KvStoreSettings, WorkerSettings
from baton.settings.models import ModelSettings

Say = Callable[[str], None]
"""Tells whoever asked for the change how far it is."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class WorkerBase:
    """What all workers of a cluster have in common."""

    settings: Mapping[str, str]
    on_shared_cores: Mapping[str, str]
    cores: Sequence[int]


class ModelChanges:
    """The models of a running cluster.

    Owned by the supervisor's task; changes of different models may run at the same time.

    Args:
        options: of the cluster.
        models: those that it was started with.
        prepared: its processes.
        preparation: prepares more.
        base: what its workers have in common.
        supervisor: runs its processes.
        forget_kept: removes what etcd keeps of a model without workers.
        memory: returns the bytes that its processes may use.
        turns: gives models their turns; None: all have workers.
        room: of the models that take turns.
    """

    def __init__(
        self,
        options: ClusterOptions,
        models: Sequence[LocalModel],
        prepared: Sequence[PreparedProcess],
        preparation: Preparation,
        base: WorkerBase,
        supervisor: Supervisor,
        forget_kept: Callable[[str], Awaitable[None]],
        memory: Callable[[], int] = machine_memory,
        turns: OnDemandModels | None = None,
        room: OnDemandRoom | None = None,
    ) -> None:
        self._options = options
        self._models = {model.name: model for model in models}
        self._prepared = {one.spec.id: one for one in prepared}
        self._preparation = preparation
        self._base = base
        self._supervisor = supervisor
        self._forget_kept = forget_kept
        self._memory = memory
        self._turns = turns
        self._room = room
        self._changing: dict[str, str] = {}
        """Models that change now, with how."""
        numbers = [one.spec.id.rpartition("-") for one in prepared if one.spec.model]
        self._next = {
            role: max((int(number) for of, _, number in numbers if of == role), default=-1) + 1
            for role in ROLES
        }

    @property
    def names(self) -> list[str]:
        """The models, in the order of their starts."""
        return list(self._models)

    async def add(self, given: ModelSettings, say: Say) -> None:
        """Start the workers of one more model; return once they serve.

        Raises:
            CommandError: it cannot be served, or does not start.
        """
        self._require_manual()
        model = resolve(given, replace(self._options, model_name=""))
        if len(self._models) >= MAX_MODELS:
            raise CommandError(f"The cluster has {MAX_MODELS} models, the most on one machine.")
        self._require_idle(model.name)
        if model.name in self._models:
            raise CommandError(
                f"The cluster serves a model named {model.name!r} already: set name=, or change "
                "its workers with `baton models set`."
            )
        require_distinct([*self._models.values(), model])
        await self._become(model, say, "is being added")

    async def set(self, name: str, counts: Mapping[str, str], say: Say) -> None:
        """Give a model other numbers of workers; return once they serve and others have drained.

        Raises:
            CommandError: there is no such model, a number is invalid, or a worker does not start.
        """
        self._require_manual()
        old = self._require_model(name)
        if other := [option for option in counts if option not in ROLES]:
            raise CommandError(
                f"{other[0]!r} cannot change while a model is served: set {', '.join(ROLES)}, or "
                "remove the model and add it again."
            )
        values = checked(f"Model {name!r}", {**counts, "path": old.path})
        new = replace(
            old,
            prefill=old.prefill if values.prefill is None else values.prefill,
            decode=old.decode if values.decode is None else values.decode,
            combined=old.combined if values.combined is None else values.combined,
        )
        if new.decode + new.combined == 0:
            raise CommandError(
                f"Model {name!r} would have no decode worker: set at least decode=1 or combined=1, "
                "or remove it."
            )
        await self._become(new, say, "is being changed")

    async def remove(self, name: str, wait_seconds: float, say: Say) -> None:
        """Drain the workers of a model; return once they have ended.

        Args:
            name: of the model.
            wait_seconds: how long its running requests may take to end: no other worker could
                take them over.
            say: tells how far it is.

        Raises:
            CommandError: there is no such model, or no other.
        """
        self._require_manual()
        self._require_model(name)
        if len(self._models) - list(self._changing.values()).count("is being removed") == 1:
            raise CommandError(
                f"Model {name!r} is the only one: add another first, or stop the cluster."
            )
        if self._turns is not None:
            self._turns.leave(name)
        self._changing[name] = "is being removed"
        try:
            ids = self._ids(name)
            await self._until_idle(ids, wait_seconds, say)
            await asyncio.gather(*map(self._stop, ids))
            if self._turns is not None:
                self._turns.remove(name)
            del self._models[name]
            await self._forget_kept(name)
        except (EtcdError, ValueError) as error:
            raise CommandError(
                f"The workers of {name!r} have ended, and clients still see the model: {error}.",
                EXIT_FAILED,
            ) from error
        finally:
            del self._changing[name]

    async def _become(self, model: LocalModel, say: Say, how: str) -> None:
        """Start what a model lacks, then drain what it has too many of."""
        turns, is_new = self._turns, model.name not in self._models
        is_up = turns is None or (not is_new and turns.require_settled(model.name))
        started, ended = self._difference(model)
        self._require_memory([*started], ended)
        self._changing[model.name] = how
        try:
            for one in started:
                self._prepared[one.spec.id] = one
                self._supervisor.register(one.spec, one.child)
            ids = [one.spec.id for one in started]
            try:
                with nullcontext() if turns is None else turns.changing(model.name):
                    await self._start(model.name, ids, say, is_new=is_new, is_up=is_up)
                    self._models[model.name] = model
                    if turns is not None:
                        kept = [one for one in self._ids(model.name) if one not in ended]
                        turns.set_workers(model.name, kept)
            except BaseException:
                await asyncio.gather(*map(self._stop, ids))
                raise
            if ended and is_up:
                say(f"Draining {', '.join(ended)}.")
            await asyncio.gather(*map(self._stop, ended))
        finally:
            del self._changing[model.name]

    async def _start(
        self, model: str, ids: Sequence[str], say: Say, *, is_new: bool, is_up: bool
    ) -> None:
        """Start workers, and return once they serve; those of a model that is away wait for it."""
        if is_up:
            for name in ids:
                self._supervisor.add(name)
            if ids:
                say(f"Starting {', '.join(ids)}.")
            await self._supervisor.wait_added(ids)
        elif is_new and self._turns is not None:
            say(f"Starting {', '.join(ids)} once there is room.")
            await self._turns.add(model, ids)
        else:
            say(f"Model {model!r} has no workers now: the change applies from its next turn on.")

    def _difference(self, model: LocalModel) -> tuple[list[PreparedProcess], list[str]]:
        """Return the workers to start for a model, and the ids of those to end, the youngest."""
        added, ended = {}, []
        for role in ROLES:
            running = [name for name in self._ids(model.name) if name.startswith(f"{role}-")]
            added[role] = max(0, model.workers(role) - len(running))
            ended += running[model.workers(role) :]
        others = [one for one in self._models.values() if one.name != model.name]
        at_once = largest([*others, model], self._room)
        threads = share_cores(len(self._base.cores), at_once, False)
        missing = replace(
            model, prefill=added["prefill"], decode=added["decode"], combined=added["combined"]
        )
        specs = worker_specs(
            missing, self._base.settings, threads, self._base.on_shared_cores, self._next
        )
        prepared = [self._preparation.prepare(spec) for spec in specs]
        for role, count in added.items():
            self._next[role] += count
        return prepared, ended

    def _ids(self, model: str) -> list[str]:
        return [one.spec.id for one in self._prepared.values() if one.spec.model == model]

    async def _stop(self, name: str) -> None:
        await self._supervisor.forget(name)
        self._prepared.pop(name, None)

    async def _until_idle(self, ids: Sequence[str], seconds: float, say: Say) -> None:
        """Wait until workers have no streams, at most so long."""
        said = False
        try:
            async with asyncio.timeout(seconds):
                while streams := await self._streams(ids):
                    if not said:
                        say(f"Waiting up to {seconds:g} s for {streams:g} running streams to end.")
                        said = True
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            say("Draining the workers although streams run: these end with an error.")

    async def _streams(self, ids: Sequence[str]) -> float:
        there = self._supervisor.view.instances
        found = [there[name].metrics_address for name in ids if name in there]
        return sum(map(streams_of, await asyncio.gather(*map(read_metrics, found))))

    def _require_manual(self) -> None:
        reason = "--pin gives each worker cores of its own" if self._options.pin else ""
        if self._options.autoscale:
            reason = "--autoscale sets the numbers of workers"
        if reason:
            raise CommandError(f"{reason}: stop the cluster, and start it with other models.")

    def _require_idle(self, name: str) -> None:
        if how := self._changing.get(name):
            raise CommandError(f"Model {name!r} {how}: try again when that is done.")

    def _require_model(self, name: str) -> LocalModel:
        self._require_idle(name)
        if name not in self._models:
            raise CommandError(
                f"The cluster serves no model {name!r}. Models: {', '.join(self._models)}."
            )
        return self._models[name]

    def _require_memory(self, started: Sequence[PreparedProcess], ended: Sequence[str]) -> None:
        stay = [one for name, one in self._prepared.items() if name not in ended]
        at_once = None if self._room is None else self._room.models
        require_memory_of([*stay, *started], self._memory, at_once)


def require_memory_of(
    processes: Sequence[PreparedProcess],
    allowed: Callable[[], int] = machine_memory,
    models_at_once: int | None = None,
) -> None:
    """Check that these processes fit into the machine's memory together.

    Args:
        processes: the processes.
        allowed: returns the bytes that there are.
        models_at_once: most models whose workers run at the same time; None: all.

    Raises:
        CommandError: they do not.
    """
    require_memory(
        (
            (one.spec.model, one.settings.engine)
            for one in processes
            if isinstance(one.settings, WorkerSettings)
        ),
        sum(
            one.settings.store.arena_bytes
            for one in processes
            if isinstance(one.settings, KvStoreSettings)
        ),
        allowed,
        models_at_once,
    )
