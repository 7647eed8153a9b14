"""The states of models in etcd: written by what starts their workers, followed by others."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1 import cluster_pb2
from baton.on_demand.state import ModelState, ModelTurn
from baton.telemetry.logs import get_logger

LEASE_SECONDS = 15
_RETRY_SECONDS = 1.0
_LEAVE_SECONDS = 1.0
_NUMBERS = {
    ModelState.READY: cluster_pb2.MODEL_AVAILABILITY_READY,
    ModelState.STARTING: cluster_pb2.MODEL_AVAILABILITY_STARTING,
    ModelState.ON_DEMAND: cluster_pb2.MODEL_AVAILABILITY_ON_DEMAND,
    ModelState.LEAVING: cluster_pb2.MODEL_AVAILABILITY_LEAVING,
}
_STATES = {number: state for state, number in _NUMBERS.items()}

log = get_logger(__name__)


class TurnRecords:
    """A `baton.cluster.follow.Listener` of models that start on demand. Lives on the event loop.

    Args:
        on_change: called with all of them, by name, after each change.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        on_change: Callable[[Mapping[str, ModelTurn]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._turns: dict[str, ModelTurn] = {}
        self._listed: dict[str, ModelTurn] = {}

    def begin(self, revision: int) -> None:  # noqa: ARG002  # as Listener has it
        """Start a full list, as of an etcd revision."""
        self._listed = {}

    def take(self, name: str, value: bytes) -> None:
        """Receive the record of one model."""
        turn = self._decoded(name, value)
        if turn is not None:
            self._listed[name] = turn

    def end(self) -> None:
        """Finish a full list."""
        self._turns, self._listed = self._listed, {}
        self._on_change(self._turns)

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        """Receive that the record of one model was written, or deleted (None)."""
        turn = self._decoded(name, value) if value is not None else None
        turns = {model: known for model, known in self._turns.items() if model != name}
        self._turns = turns | ({name: turn} if turn is not None else {})
        self._on_change(self._turns)

    def _decoded(self, name: str, value: bytes) -> ModelTurn | None:
        try:
            record = keys.decode(cluster_pb2.ModelTurn, value)
            numbers = (record.room_seconds, record.start_seconds)
            if not all(0 <= number < math.inf for number in numbers):
                raise ValueError("its times are out of range")
            state = _STATES.get(record.availability)
            if state is None:
                raise ValueError(f"it has an unknown availability, {record.availability}")
        except ValueError as error:
            log.warning("cluster.record.unreadable", name=name, error=str(error))
            return None
        return ModelTurn(state, self._clock() + record.room_seconds, record.start_seconds)


class TurnWriter:
    """Keeps the states of models written under a lease. Lives on the event loop.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, etcd: Etcd, cluster: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._etcd = etcd
        self._prefix = keys.turns(cluster)
        self._clock = clock
        self._turns: Mapping[str, ModelTurn] = {}
        self._written: dict[str, ModelTurn] = {}
        self._lease = 0
        self._renewed_at = 0.0
        self._changed = asyncio.Event()

    def set(self, turns: Mapping[str, ModelTurn]) -> None:
        """Set the states of all models, to be written at once."""
        self._turns = dict(turns)
        if self._turns != self._written:
            self._changed.set()

    async def keep_written(self) -> NoReturn:
        """Write what changes, and renew the lease, until cancelled."""
        is_away = False
        while True:
            pause = LEASE_SECONDS / 3
            try:
                await self.write()
                is_away = False
            except EtcdError as error:
                if not is_away:
                    log.warning("model.turns.not_written", error=str(error))
                is_away, pause = True, _RETRY_SECONDS
                self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def write(self) -> None:
        """Renew the lease if it is time, and write what changed.

        Raises:
            EtcdError: etcd is unavailable.
        """
        now = self._clock()
        if self._lease and now - self._renewed_at >= LEASE_SECONDS / 3:
            if await self._etcd.keep_alive(self._lease) <= 0:
                self._lease = 0
            self._renewed_at = now
        if not self._lease:
            self._lease = await self._etcd.grant(LEASE_SECONDS)
            self._renewed_at, self._written = now, {}
        self._changed.clear()
        wanted = self._turns
        gone = [model for model in self._written if model not in wanted]
        if gone:
            await self._etcd.replace_all((), (), [self._prefix + model for model in gone])
            for model in gone:
                del self._written[model]
        for model, turn in wanted.items():
            if self._written.get(model) != turn:
                record = cluster_pb2.ModelTurn(
                    availability=_NUMBERS[turn.state],
                    room_seconds=max(0.0, turn.room_at - self._clock()),
                    start_seconds=turn.start_seconds,
                )
                value = keys.encode(record)
                await self._etcd.put(self._prefix + model, value, self._lease)
                self._written[model] = turn

    async def leave(self) -> None:
        """Delete the records within a second: what starts the workers stops."""
        with suppress(EtcdError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                lease, self._lease = self._lease, 0
                if lease:
                    await self._etcd.revoke(lease)
