"""The engine contract: what a worker asks of an engine. What the engine reports is in events.py.

One thread owns an engine: it makes it and alone calls its methods, but for `read_blocks` and
`write_blocks`. A sequence's life:

    add ─▶ Admitted ─▶ (blocks written) ─▶ start
    ─▶ SampledTokens…, BlocksReady… ─▶ SequenceEnded ─▶ close

Sequences wait in an order: those that go on, then streams that another engine began, then what has
waited for too long, then by `SequenceRequest.order`. Nothing that has begun is interrupted for it.
A sequence is admitted when pages for its prompt are free and no other sequence is busy computing or
loading the block that it would need first. Between Admitted and `start` the worker may write KV
blocks that it fetched. Ended sequences keep their pages until `close`, so that the worker can still
read blocks out of them. `close` works in every state and releases everything.

A sequence that is paused keeps its place and gets no tokens, so that its reader can catch up; how
many pages paused sequences keep is bounded, and they are the first to give them up. What has given
its pages up is computed again once it is resumed: it gets the tokens that it would have had.

Which step an event comes with is the engine's choice: one that schedules ahead of the device
returns nothing from some steps, and has work until everything was returned.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from baton.engine.events import CachedBlock, Event
from baton.engine.work_order import BY_ARRIVAL, WorkOrder
from baton.kv.layout import Layout
from baton.sampling import SamplingParams
from baton.structured.grammars import Grammars


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """One sequence for an engine."""

    id: int
    """Chosen by the worker, unique among open sequences."""
    root: bytes
    """Chain root of its KV keys (`baton.kv.keys.chain_root`); equal roots share prefixes."""
    prompt: Sequence[int]
    sampling: SamplingParams
    """Within their limits. A seed of None is 0; stop strings mean nothing to an engine."""
    choices: tuple[int, ...] = (0,)
    """Which choices to sample. More than one only with `prefill_only`."""
    prefill_only: bool = False
    """Sample one token per choice after the prompt and end."""
    output: tuple[int, ...] = ()
    """Output tokens so far of a stream that another worker began. Prompt and these together are the
    context: its blocks are matched in the prefix cache, named in Admitted and may be written.
    Empty with `prefill_only`."""
    prompt_logprobs: int | None = None
    """Report the log probability of each prompt token but the first, with so many alternatives: all
    of the prompt is computed then, and nothing of it is taken from the prefix cache. None: none."""
    adapter: str = ""
    """A LoRA adapter of `EngineInfo.adapters`; empty: the base model. Its digest is in `root`."""
    order: WorkOrder = BY_ARRIVAL
    """Of what waits, the lowest is computed first, and the first one among equals."""
    expected_cached_tokens: int = 0
    """Leading prompt tokens whose KV is expected to be found: for `EngineStats` alone."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot between two steps; rates are moving averages, 0 while unknown."""

    running: int
    waiting: int
    pending_prompt_tokens: int
    free_pages: int
    """Pages that nothing holds or that only the prefix cache holds."""
    total_pages: int
    open_sequences: int
    computed_tokens: int
    """Since start, counted in the forward pass."""
    cached_tokens: int
    prefill_tokens_per_second: float
    decode_step_seconds: float
    pending_cached_tokens: int = 0
    """Of `pending_prompt_tokens`, those that are expected to be found instead of computed."""
    late_masks: int = 0
    """Since start: how often a sequence sat out, because its grammar's mask was not there."""
    paused: int = 0
    """Sequences that are held back by `pause`; neither running nor waiting."""
    paused_pages: int = 0
    """Pages that these keep, those that they share with others counted for each."""


class ContextLimit(Enum):
    """What bounds the length of a sequence."""

    CHECKPOINT = "checkpoint"
    SETTING = "setting"
    """engine.context_tokens."""
    KV_MEMORY = "kv_memory"
    """engine.kv_bytes: one sequence fits into it alone."""


@dataclass(frozen=True, slots=True)
class Operators:
    """What the torch engine computes with."""

    variant: str = ""
    """The instruction set that its operators were compiled for; empty: plain torch."""
    reason: str = ""
    """Why it is plain torch, or not the best that this CPU runs; empty: it is the best."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What does not change while an engine lives."""

    layout: Layout
    block_bytes: int
    weights_digest: bytes
    context_tokens: int
    context_limit: ContextLimit
    """What bounds `context_tokens`."""
    checkpoint_context_tokens: int
    """The context length that the checkpoint itself has."""
    vocab_tokens: int
    eos_token_ids: tuple[int, ...]
    features: tuple[str, ...]
    """Beyond the minimum: `logprobs`, `penalties`, `logit_bias`, …"""
    max_running: int
    """Sequences that hold pages and have not ended, at most."""
    max_waiting: int
    """Sequences that may wait beside as many as `max_running`."""
    adapters: Mapping[str, bytes] = field(default_factory=dict)
    """LoRA adapters by name, each with the 16-byte digest of its bytes."""
    exact_continuation: bool = True
    """Whether a sampled output that goes on in another engine has the same tokens. Without it only
    greedy ones do."""
    chunk_tokens: int = 0
    """Most prompt tokens that a step computes where no stream runs; 0: unknown."""
    decode_chunk_tokens: int = 0
    """Most prompt tokens that a step computes beside running streams; 0: unknown."""
    operators: Operators | None = None
    """None: an engine that has none of its own."""
    name: str = ""
    """`torch`, `vllm` or `sim`."""
    dtype: str = ""
    """What it computes in, such as `bfloat16`; empty: it computes nothing."""
    inexact_reason: str = ""
    """Why another batch, or another worker, may compute other tokens, and what to do; empty: the
    tokens are the same, whatever else is computed."""

    @property
    def max_sequences(self) -> int:
        """Sequences that run, or wait to begin; `add` refuses more."""
        return self.max_running + self.max_waiting


class QueueFullError(Exception):
    """`add` found as many sequences as the engine takes, running or waiting."""


class UnsupportedFeatureError(ValueError):
    """`add` was asked for something that this engine does not do at all.

    Args:
        feature: its name, as `EngineInfo.features` would have it.
    """

    def __init__(self, feature: str) -> None:
        super().__init__(f"this engine does not support {feature}")
        self.feature = feature


class BlockGoneError(Exception):
    """The sequence does not hold a block any more: it was preempted and waits, or the engine gave
    the block's page up, as it may behind a sliding window. What lies in the page now is another's.
    """


class Engine(ABC):
    """An engine, owned by one thread, which alone calls it; other threads only copy blocks."""

    info: EngineInfo
    scratch: memoryview
    """Room for one or more blocks in memory that the engine copies from fastest, writable, for one
    thread at a time: where fetched blocks are checked before `write_blocks`. Copies of as many
    blocks per call as it holds are the fastest."""
    grammars: Grammars | None = None
    """Compiles the grammars of sequences, which any thread may ask for; `add` does not wait for
    what was compiled before. None: the engine has not the feature `grammar`."""

    @abstractmethod
    def add(self, request: SequenceRequest) -> None:
        """Queue a sequence.

        Raises:
            QueueFullError: `EngineInfo.max_sequences` run or wait already; nothing was queued.
            UnsupportedFeatureError: it needs `adapters` or `grammar`, and this engine has none.
            GrammarError: the grammar cannot be kept.
            GrammarsBusyError: too many grammars wait to be compiled.
            ValueError: the prompt cannot ever fit, a field is out of range (names the limit), or
                there is no such adapter (names it).
        """

    @abstractmethod
    def start(self, sequence_id: int, ready_tokens: int, output: Sequence[int] = ()) -> None:
        """Begin computing an admitted sequence.

        Args:
            sequence_id: the sequence.
            ready_tokens: leading context tokens whose KV is in place, cached or written; at least
                `Admitted.cached_tokens`, at most the context's length. Less than the whole context,
                an engine may compute the tokens beyond the last full block of these again.
            output: all output tokens so far, after which sampling goes on; begins with the
                request's own `output`. Empty: the request's own. KV of prompt and output is
                computed where it is not in place, at least for the last token.

        Raises:
            KeyError: no such sequence.
            ValueError: it was started already, or an argument is out of range.
        """

    @abstractmethod
    def pause(self, sequence_id: int) -> None:
        """Give a sequence no more tokens until `resume`, however long that takes.

        It may be called at any time before `close`, and again without effect. The prompt is
        computed all the same, as others may wait for its blocks, and the first token that comes
        here is sampled; a few more may come of steps that are under way. A `prefill_only` sequence
        goes on to its end.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def resume(self, sequence_id: int) -> None:
        """Let a paused sequence go on, with the tokens that it would have had without the pause.

        One that is not paused goes on as it does.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def close(self, sequence_id: int) -> None:
        """Release everything of a sequence, in whatever state it is.

        Full blocks stay in the prefix cache until their pages are needed.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def step(self) -> list[Event]:
        """Admit what fits, run one batch if there is one, and return what happened, in order."""

    @abstractmethod
    def has_work(self) -> bool:
        """Return whether `step` would do anything now."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Return a snapshot of how busy the engine is."""

    @abstractmethod
    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview]
    ) -> None:
        """Copy blocks that were reported ready, each to its place in `out`.

        Any thread may call it while the sequence is open. After an error `out` may hold anything.

        Args:
            sequence_id: the sequence.
            indexes: which blocks of it.
            out: as many views, writable, of `info.block_bytes` each.

        Raises:
            KeyError: no such sequence.
            ValueError: a block was not reported ready, or a view has another size.
            BlockGoneError: the sequence does not hold one of the blocks: it was preempted and has
                not come to it again, or its page was given up. The others may be read without it.
        """

    @abstractmethod
    def write_blocks(self, sequence_id: int, indexes: Sequence[int], data: memoryview) -> None:
        """Copy KV into blocks of an admitted sequence's context.

        Any thread may call it between Admitted and `start`, for blocks from
        `Admitted.cached_tokens` on. Nothing else sees the blocks before `start` says that they are
        in place, so bytes that prove wrong may be written over or left out of `ready_tokens`.

        Args:
            sequence_id: the sequence.
            indexes: which blocks of it.
            data: as many blocks of `info.block_bytes`, one after the other; any memory, fastest
                from `scratch`.

        Raises:
            KeyError: no such sequence.
            ValueError: not such a block, not that time, or `data` has another size. Nothing was
                written.
            BlockGoneError: the engine keeps no page for one of the blocks. Nothing was written.
        """

    @abstractmethod
    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        """Return blocks of the prefix cache that no sequence has held for that long.

        Longest idle first; of one chain, a block comes before the one that it continues.
        """

    @abstractmethod
    def evict_blocks(self, keys: Iterable[bytes] | None = None, idle_seconds: float = 0.0) -> int:
        """Evict blocks that no sequence holds from the prefix cache; return how many.

        Args:
            keys: which; None: all. Those that are not there, or are held, are left alone.
            idle_seconds: only what no sequence has held for that long.
        """

    @abstractmethod
    def warm_up(self) -> None:
        """Run what is slow the first time, so that the first request is not."""

    @abstractmethod
    def reset_stats(self) -> None:
        """Count anew: no token was computed or cached, and no rate is known."""

    @abstractmethod
    def close_engine(self) -> None:
        """Release memory and threads. Nothing is copied then, and the engine is not used again."""
