"""A combined worker: the engine's own scheduler, with steps that take time on a virtual clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from baton.engine.base import ContextLimit, Engine, EngineInfo, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, Event, SampledTokens, SequenceEnded
from baton.engine.paged.engine import PagedEngine
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits
from baton.engine.sampling.draw import NotSampled, Sampled
from baton.engine.sim.pages import TOKEN_BYTES
from baton.engine.sim.runner import SimCosts, SimRunner
from baton.kv.layout import Layout
from bench.router.idle_room.clock import Clock
from services.router.state.instances import LoadReport, ReportedClassLoad

BLOCK_TOKENS = 16
LAYOUT = Layout("sim/1", "cpu", "", "uint8", 1, 1, TOKEN_BYTES, BLOCK_TOKENS)
REPORT_SECONDS = 0.05
_PAGES = 32_768
_VOCAB = 1000
_NO_TIME = SimCosts(0.0, 0.0, 0.0)


@dataclass(eq=False)
class Work:
    """A request that was placed here; times are of the clock."""

    request: SequenceRequest
    ticket: str
    times: list[float] = field(default_factory=list)
    """Of its tokens."""


class VirtualRunner(SimRunner):
    """Computes in no time, and says how long its last batch would have taken."""

    def __init__(self, costs: SimCosts) -> None:
        super().__init__(_PAGES, BLOCK_TOKENS, _VOCAB, (), 1, _NO_TIME)
        self._real = costs
        self.seconds = 0.0
        """Duration of all batches."""

    def run(self, batch: Sequence[ScheduledChunk]) -> list[tuple[Sampled, ...] | NotSampled]:
        counts = [chunk.end - chunk.start for chunk in batch]
        self.seconds += self._real.of(sum(n for n in counts if n > 1), counts.count(1))
        return super().run(batch)


class VirtualWorker:
    """Steps an engine as `EngineLoop` does: commands between steps, events once a step has ended.

    Args:
        name: its instance id.
        clock: of all workers.
        costs: of a step.
        places: `max_running`.
        chunk_tokens: prompt tokens per step.
        on_report: called with each load report.
        on_blocks: called with keys of new blocks.
        on_ended: called with work that ended.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        costs: SimCosts,
        places: int,
        chunk_tokens: int,
        on_report: Callable[[LoadReport], None],
        on_blocks: Callable[[str, Sequence[bytes]], None],
        on_ended: Callable[[Work], None],
    ) -> None:
        self.name = name
        self._clock = clock
        self._on_report, self._on_blocks, self._on_ended = on_report, on_blocks, on_ended
        self._runner = VirtualRunner(costs)
        limits = SchedulerLimits(BLOCK_TOKENS, places, 256, chunk_tokens, chunk_tokens, 0.25)
        self._info = EngineInfo(
            layout=LAYOUT,
            block_bytes=BLOCK_TOKENS * TOKEN_BYTES,
            weights_digest=bytes(16),
            context_tokens=4096,
            context_limit=ContextLimit.CHECKPOINT,
            checkpoint_context_tokens=4096,
            vocab_tokens=_VOCAB,
            eos_token_ids=(),
            features=(),
            max_running=places,
            max_waiting=256,
            chunk_tokens=chunk_tokens,
            decode_chunk_tokens=chunk_tokens,
        )
        self._began = self._spent = 0.0
        self.engine = PagedEngine(self._info, self._runner, _PAGES, limits, clock=self._time)
        self._commands: list[Callable[[Engine], None]] = []
        self._stepping = False
        self._work: dict[int, Work] = {}
        self._reported = -1.0

    def add(self, work: Work) -> None:
        """Run a request."""
        self._work[work.request.id] = work
        self._commands.append(lambda engine: engine.add(work.request))
        if not self._stepping:
            self._step()

    def report(self) -> None:
        """Report the load, unless it was reported just now."""
        now = self._clock.now
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        stats, info = self.engine.stats(), self._info
        tickets = sorted(work.ticket for work in self._work.values())
        classes = [
            ReportedClassLoad(
                one.priority_class,
                one.running,
                one.waiting,
                one.pending_prompt_tokens - one.pending_cached_tokens,
                one.pages,
            )
            for one in stats.classes
        ]
        self._on_report(
            LoadReport(
                self.name,
                "1",
                stats.running,
                stats.waiting,
                stats.pending_prompt_tokens - stats.pending_cached_tokens,
                stats.free_pages,
                stats.total_pages,
                stats.prefill_tokens_per_second,
                stats.decode_step_seconds,
                tickets=tickets,
                ticket_sequences=[1] * len(tickets),
                chunk_tokens=info.chunk_tokens,
                decode_chunk_tokens=info.decode_chunk_tokens,
                max_running=info.max_running,
                max_sequences=info.max_sequences,
                classes=classes,
            )
        )

    def _time(self) -> float:
        return self._began + self._runner.seconds - self._spent

    def _step(self) -> None:
        self._began, self._spent = self._clock.now, self._runner.seconds
        for command in self._commands:
            command(self.engine)
        self._commands.clear()
        self._stepping = self.engine.has_work()
        if self._stepping:
            events = self.engine.step()
            # A step without a batch takes a little time, too.
            self._clock.at(max(self._time(), self._began + 1e-6), lambda: self._deliver(events))
        self.report()

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Admitted(id=number, cached_tokens=cached):
                    self._start(number, cached)
                case BlocksReady(keys=keys):
                    self._on_blocks(self.name, keys)
                case SampledTokens(id=number):
                    self._work[number].times.append(self._clock.now)
                case SequenceEnded(id=number):
                    self._close(number)
        self._step()

    def _start(self, number: int, cached: int) -> None:
        self._commands.append(lambda engine: engine.start(number, cached))

    def _close(self, number: int) -> None:
        self._commands.append(lambda engine: engine.close(number))
        self._on_ended(self._work.pop(number))
