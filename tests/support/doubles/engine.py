"""An engine with features that the simulator lacks: adapters, and samples of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from baton.engine.base import Engine, EngineInfo, EngineStats, SequenceRequest
from baton.engine.events import CachedBlock, Event
from baton.engine.factory import create_engine
from baton.settings import EngineSettings


def digest_of(name: str, version: str = "") -> bytes:
    """Return the digest of an adapter of the double; an adapter may have several versions."""
    return sha256(f"{name} {version}".encode()).digest()[:16]


class AdaptedEngine(Engine):
    """The simulator with adapters that compute the same as the model, under other KV keys.

    Args:
        settings: settings of the simulator.
        info: changes of the engine's info, compared with the simulator's.
    """

    def __init__(self, settings: EngineSettings, **info: object) -> None:
        self._engine = create_engine(settings)
        self.info: EngineInfo = replace(self._engine.info, **info)  # type: ignore[arg-type]  # by name
        self.scratch = self._engine.scratch
        self.asked: list[SequenceRequest] = []
        """The added sequences, oldest first."""

    def add(self, request: SequenceRequest) -> None:
        if request.adapter and request.adapter not in self.info.adapters:
            raise ValueError(f"no adapter {request.adapter}")
        self.asked.append(request)
        self._engine.add(replace(request, adapter=""))

    def start(self, sequence_id: int, ready_tokens: int, output: Sequence[int] = ()) -> None:
        self._engine.start(sequence_id, ready_tokens, output)

    def pause(self, sequence_id: int) -> None:
        self._engine.pause(sequence_id)

    def resume(self, sequence_id: int) -> None:
        self._engine.resume(sequence_id)

    def close(self, sequence_id: int) -> None:
        self._engine.close(sequence_id)

    def step(self) -> list[Event]:
        return self._engine.step()

    def has_work(self) -> bool:
        return self._engine.has_work()

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int = 0
    ) -> None:
        self._engine.read_blocks(sequence_id, indexes, out, group)

    def write_blocks(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int = 0
    ) -> None:
        self._engine.write_blocks(sequence_id, indexes, data, group)

    def fill_blocks(
        self,
        sequence_id: int,
        indexes: Sequence[int],
        fill: Callable[[int, memoryview], None],
        group: int = 0,
    ) -> bool:
        return self._engine.fill_blocks(sequence_id, indexes, fill, group)

    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        return self._engine.idle_blocks(seconds)

    def evict_blocks(self, keys: Iterable[bytes] | None = None, idle_seconds: float = 0.0) -> int:
        return self._engine.evict_blocks(keys, idle_seconds)

    def warm_up(self) -> None:
        self._engine.warm_up()

    def reset_stats(self) -> None:
        self._engine.reset_stats()

    def close_engine(self) -> None:
        self._engine.close_engine()
