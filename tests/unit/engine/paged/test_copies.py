"""Pages change hands only when no copy from them is under way."""

import threading
from collections.abc import Sequence

from baton.engine.base import SequenceRequest
from baton.engine.events import Admitted, BlocksReady
from baton.engine.paged.engine import PagedEngine
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits
from baton.engine.paged.runner import Runner
from baton.engine.sampling.draw import Sampled
from baton.sampling import SamplingParams
from tests.support.engine.info import engine_info

INFO = engine_info()


class SlowRunner(Runner):
    """Draws the token 7; its reads last until they are released; it records what happens."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.reading = threading.Event()
        self.release_reads = threading.Event()

    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...]]:
        self.happened.append("run")
        return [(Sampled(7),) if chunk.samples else () for chunk in batch]

    def forget(self, sequence_id: int) -> None:
        self.happened.append(f"forget {sequence_id}")

    def memory_of(self, group: int) -> "SlowRunner":
        return self

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        self.happened.append("clear")

    def read_pages(self, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        self.reading.set()
        assert self.release_reads.wait(10)
        self.happened.append("read")

    def write_pages(self, pages: Sequence[int], data: memoryview) -> None:
        self.read_pages(pages, [data])

    def warm_up(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def request(number: int, tokens: int) -> SequenceRequest:
    return SequenceRequest(
        id=number,
        root=b"root",
        prompt=[number] * tokens,
        sampling=SamplingParams(max_tokens=100),
    )


def engine_of(pages: int, runner: Runner) -> PagedEngine:
    limits = SchedulerLimits(
        block_tokens=4,
        max_running=8,
        max_waiting=8,
        chunk_tokens=64,
        decode_chunk_tokens=64,
        paused_share=0.25,
    )
    return PagedEngine(INFO, runner, pages, limits)


def started(engine: PagedEngine, *requests: SequenceRequest) -> None:
    for asked in requests:
        engine.add(asked)
    for event in engine.step():
        if isinstance(event, Admitted):
            engine.start(event.id, 0)


def copying(engine: PagedEngine, runner: SlowRunner, number: int) -> threading.Thread:
    block = memoryview(bytearray(4))
    thread = threading.Thread(target=engine.read_blocks, args=(number, [0], [block]))
    thread.start()
    assert runner.reading.wait(10)
    return thread


def release_soon(runner: SlowRunner) -> None:
    threading.Timer(0.1, runner.release_reads.set).start()


def test_close_waits_for_a_copy_under_way() -> None:
    runner = SlowRunner()
    engine = engine_of(8, runner)
    started(engine, request(1, 4))
    assert any(isinstance(event, BlocksReady) for event in engine.step())
    thread = copying(engine, runner, 1)
    release_soon(runner)
    engine.close(1)
    assert runner.happened[-2:] == ["read", "forget 1"]
    thread.join(10)


def test_pages_of_a_preempted_sequence_are_used_after_the_copy() -> None:
    runner = SlowRunner()
    engine = engine_of(8, runner)
    started(engine, request(1, 16), request(2, 16))
    engine.step()
    thread = copying(engine, runner, 2)
    runner.happened.clear()
    release_soon(runner)
    engine.step()
    assert runner.happened == ["read", "forget 2", "clear", "run"]
    thread.join(10)
