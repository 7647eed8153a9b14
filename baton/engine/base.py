"""The engine contract: what a worker requires of an engine. events.py defines what an engine
reports.

One thread owns an engine: it creates the engine and alone calls its methods, except `read_blocks`
and `write_blocks`. Life cycle of a sequence:

    add ─▶ Admitted ─▶ (blocks written) ─▶ start
    ─▶ SampledTokens…, BlocksReady… ─▶ SequenceEnded ─▶ close

Waiting sequences are ordered by their classes (`WorkOrder.priority_class`); of a class, first those
that continue, then streams that another engine began, then overdue ones, then by
`SequenceRequest.order`. A sequence that has begun is interrupted only for a higher class, which
takes its place in the batch, its pages if they are short, and its part of a step's prompt tokens;
it continues later, with the same tokens. A sequence is admitted when pages for its prompt are free
and no other sequence is busy computing or loading the block that it would need first. Between
Admitted and `start` the worker may write KV blocks that it fetched. Ended sequences keep their
pages until `close`, so that the worker can still read blocks out of them. `close` works in every
state and releases everything.

A paused sequence keeps its place and gets no tokens, so that its reader can catch up. The pages
that paused sequences keep are bounded, and are the first to be reclaimed. A sequence that lost its
pages is recomputed when it is resumed, and gets the same tokens.

The engine chooses the step that returns an event: one that schedules ahead of the device returns
nothing from some steps, and has work until everything was returned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from baton.engine.events import CachedBlock, Event
from baton.engine.lora.adapter import Adapter
from baton.engine.lora.limits import AdapterLimits
from baton.engine.pictures import PictureReader, PictureTokens
from baton.engine.work_order import BY_ARRIVAL, WorkOrder
from baton.kv.keys import PlaceholderRun
from baton.kv.layout import Layout
from baton.sampling import SamplingParams
from baton.structured.grammars import Grammars

PICTURES = "pictures"
"""The feature of engines that take pictures, which placeholder tokens in a prompt stand for."""


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """Request to compute one sequence on an engine."""

    id: int
    """Chosen by the worker, unique among open sequences."""
    root: bytes
    """Chain root of its KV keys (`baton.kv.keys.chain_root`); equal roots share prefixes."""
    prompt: Sequence[int]
    sampling: SamplingParams
    """Sampling parameters within their limits. A seed of None is 0; stop strings are ignored."""
    choices: tuple[int, ...] = (0,)
    """Which choices to sample. More than one only with `prefill_only`."""
    prefill_only: bool = False
    """Sample one token per choice after the prompt and end."""
    output: tuple[int, ...] = ()
    """Output tokens so far of a stream that another worker began. Prompt and output are the
    context: its blocks are matched in the prefix cache, named in Admitted and may be written. Empty
    with `prefill_only`.
    """
    prompt_logprobs: int | None = None
    """Report the log probability of each prompt token but the first, with this many alternatives:
    all of the prompt is computed then, and nothing of it is taken from the prefix cache. None:
    none.
    """
    adapter: str = ""
    """A LoRA adapter of `EngineInfo.adapters`, or the key of one that was added; empty: the base
    model. Its digest is in `root`.
    """
    order: WorkOrder = BY_ARRIVAL
    """Order among waiting sequences: the lowest is computed first, and the first among equals."""
    step_seconds: float = 0.0
    """Duration up to which work of lower classes is taken into steps with this sequence, where the
    engine can leave sequences out of steps; 0: no limit.
    """
    expected_cached_tokens: int = 0
    """Leading prompt tokens whose KV is expected to be found; used only for `EngineStats`."""
    runs: tuple[PlaceholderRun, ...] = ()
    """The prompt's placeholder tokens, in order; keys of blocks that hold some contain what stands
    for them. Only for engines with the feature `pictures`.
    """
    pictures: tuple[Any, ...] = ()
    """What `Engine.pictures` has read, one per run."""
    cut_tokens: int = 0
    """Only for layouts with groups: a cut (`baton.kv.cuts`) of the context whose missing blocks are
    going to be written. Pages are taken for the longer of this one and the prefix cache's own. It
    is below the context's length, and ends on a block or before the last token.
    """


class ClassLoad(NamedTuple):
    """The sequences of one class among `EngineStats`."""

    priority_class: int
    """Its rank, as of `WorkOrder`."""
    running: int = 0
    waiting: int = 0
    pending_prompt_tokens: int = 0
    pending_cached_tokens: int = 0
    pages: int = 0
    """Pages of its running sequences; shared ones are counted for each."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot between two steps; rates are moving averages, 0 while unknown."""

    running: int
    waiting: int
    pending_prompt_tokens: int
    free_pages: int
    """Pages that are free or that only the prefix cache holds."""
    total_pages: int
    open_sequences: int
    computed_tokens: int
    """Tokens since start that went through the forward pass."""
    cached_tokens: int
    prefill_tokens_per_second: float
    decode_step_seconds: float
    pending_cached_tokens: int = 0
    """Those of `pending_prompt_tokens` that are expected to be found instead of computed."""
    late_masks: int = 0
    """Number of times since start that a sequence sat out because its grammar's mask was late."""
    paused: int = 0
    """Sequences that `pause` holds back; they are neither running nor waiting."""
    paused_pages: int = 0
    """Pages that paused sequences keep; shared ones are counted for each."""
    outranked: int = 0
    """Those of `waiting` that began, and gave their places in the batch to higher classes."""
    outranked_total: int = 0
    """Number of times since start that a sequence did so."""
    idle_room_offered: int = 0
    """Sequences of lower classes that could decode in steps with higher ones, since start."""
    idle_room_used: int = 0
    """Those that did."""
    classes: tuple[ClassLoad, ...] = ()
    """Running and waiting sequences by class, the highest first; those without any are left out."""


class ContextLimit(Enum):
    """Limit on the length of a sequence."""

    CHECKPOINT = "checkpoint"
    SETTING = "setting"
    """The setting engine.context_tokens."""
    KV_MEMORY = "kv_memory"
    """The setting engine.kv_bytes: one sequence alone fits into it."""


@dataclass(frozen=True, slots=True)
class Operators:
    """Operators with which the torch engine computes."""

    variant: str = ""
    """Instruction set for which its operators were compiled; empty: plain torch."""
    reason: str = ""
    """Reason for plain torch, or for a variant below this CPU's best; empty: it is the best."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Properties that do not change during an engine's life."""

    layout: Layout
    block_bytes: int
    """Bytes of a block in all groups together."""
    weights_digest: bytes
    context_tokens: int
    context_limit: ContextLimit
    """Limit that determines `context_tokens`."""
    checkpoint_context_tokens: int
    """Context length of the checkpoint itself."""
    vocab_tokens: int
    eos_token_ids: tuple[int, ...]
    features: tuple[str, ...]
    """Features beyond the minimum: `logprobs`, `penalties`, `logit_bias`, …"""
    max_running: int
    """Maximum number of sequences that hold pages and have not ended."""
    max_waiting: int
    """Maximum number of sequences that wait, in addition to `max_running`."""
    adapters: Mapping[str, bytes] = field(default_factory=dict)
    """LoRA adapters that the engine began with, by name, each with the 16-byte digest of its bytes.
    """
    adapter_limits: AdapterLimits | None = None
    """Which adapters can be added and removed; None: none."""
    exact_continuation: bool = True
    """Whether a sampled output that continues in another engine has the same tokens. If false, only
    greedy outputs do.
    """
    chunk_tokens: int = 0
    """Maximum prompt tokens that a step computes while no stream runs; 0: unknown."""
    decode_chunk_tokens: int = 0
    """Maximum prompt tokens that a step computes alongside running streams; 0: unknown."""
    operators: Operators | None = None
    """Operators of the engine; None: it has no operators to report."""
    name: str = ""
    """`torch`, `vllm` or `sim`."""
    dtype: str = ""
    """Data type of computation, such as `bfloat16`; empty: it computes nothing."""
    inexact_reason: str = ""
    """Why another batch, or another worker, may compute other tokens, and the remedy; empty: the
    tokens are the same regardless of what else is computed.
    """
    pictures: PictureTokens | None = None
    """What stands for a picture; only with the feature `pictures`."""

    @property
    def object_bytes(self) -> tuple[int, ...]:
        """Bytes of a block in each group."""
        groups = self.layout.groups
        return tuple(group.block_bytes for group in groups) or (self.block_bytes,)

    @property
    def max_sequences(self) -> int:
        """Maximum number of running and waiting sequences; `add` rejects more."""
        return self.max_running + self.max_waiting


class QueueFullError(Exception):
    """`add` found the maximum number of running and waiting sequences."""


class UnsupportedFeatureError(ValueError):
    """`add` was asked for a feature that this engine does not support.

    Args:
        feature: its name, as `EngineInfo.features` would have it.
    """

    def __init__(self, feature: str) -> None:
        super().__init__(f"this engine does not support {feature}")
        self.feature = feature


class BlockGoneError(Exception):
    """The sequence no longer holds a block: it was preempted and waits, or the engine released the
    block's page, as it may behind a sliding window. The page may now hold other data.
    """


class Engine(ABC):
    """An engine, owned by one thread, which alone calls it; other threads only copy blocks."""

    info: EngineInfo
    scratch: memoryview
    """Writable space for one or more blocks, in memory that the engine copies from fastest; used by
    one thread at a time, to verify fetched blocks before `write_blocks`. Copies are fastest with as
    many blocks per call as it holds.
    """
    grammars: Grammars | None = None
    """Compiler of the grammars of sequences, which any thread may call; `add` does not wait for a
    grammar that is already compiled. None: the engine lacks the feature `grammar`.
    """
    pictures: PictureReader | None = None
    """Reads the pictures of sequences. None: the engine lacks the feature `pictures`."""

    @abstractmethod
    def add(self, request: SequenceRequest) -> None:
        """Queue a sequence.

        Raises:
            QueueFullError: `EngineInfo.max_sequences` run or wait already; nothing was queued.
            UnsupportedFeatureError: it needs `adapters`, `grammar` or `pictures`, which this engine
                does not have.
            GrammarError: the grammar is not supported.
            GrammarsBusyError: too many grammars wait to be compiled.
            ValueError: the prompt can never fit, a field is out of range (the text names the
                limit), or the adapter does not exist (the text names it).
        """

    @abstractmethod
    def start(self, sequence_id: int, ready_tokens: int, output: Sequence[int] = ()) -> None:
        """Begin computing an admitted sequence.

        Args:
            sequence_id: the sequence.
            ready_tokens: leading context tokens whose KV is in place, cached or written; at least
                `Admitted.cached_tokens`, at most the context's length. Less than the whole context,
                an engine may compute the tokens beyond the last full block of these again.
                With groups: `Admitted.ready_tokens`.
            output: all output tokens so far, after which sampling continues; begins with the
                request's own `output`. Empty: the request's own. KV of prompt and output is
                computed where it is not in place, at least for the last token.

        Raises:
            KeyError: no such sequence.
            ValueError: it was started already, or an argument is out of range.
        """

    @abstractmethod
    def pause(self, sequence_id: int) -> None:
        """Give a sequence no more tokens until `resume`, however long that takes.

        It may be called at any time before `close`; calling it again has no effect. The prompt is
        still computed, as others may wait for its blocks, and the first token that comes here is
        sampled; steps in progress may yield a few more. A `prefill_only` sequence continues to its
        end.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def resume(self, sequence_id: int) -> None:
        """Resume a paused sequence, which gets the same tokens as without the pause.

        A sequence that is not paused is not affected.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def close(self, sequence_id: int) -> None:
        """Release all resources of a sequence, in any state.

        Full blocks stay in the prefix cache until their pages are needed.

        Raises:
            KeyError: no such sequence.
        """

    @abstractmethod
    def step(self) -> list[Event]:
        """Admit sequences that fit, run a batch if there is one, and return the events in order."""

    def hold_seconds(self) -> float:
        """Return how long the next step should wait for a call of `start`, because a sequence of a
        higher class than those that run was admitted; 0: it need not.
        """
        return 0.0

    @abstractmethod
    def has_work(self) -> bool:
        """Return whether `step` would do anything now."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Return a snapshot of how busy the engine is."""

    def load_adapter(self, adapter: Adapter) -> Any:  # noqa: ARG002
        """Read an adapter into memory, in the form that `add_adapter` takes.

        Any thread may call it, while others run. Only with `EngineInfo.adapter_limits`.

        Raises:
            AdapterError: its files are missing, damaged, or not those of its digest.
        """
        raise UnsupportedFeatureError("adapters")

    def add_adapter(self, key: str, loaded: Any) -> None:  # noqa: ARG002
        """Have sequences use an adapter; takes no time that running sequences would notice.

        Args:
            key: as in `SequenceRequest.adapter`; not in use.
            loaded: from `load_adapter`.

        Raises:
            ValueError: there is an adapter of this key, or no slot is free.
        """
        raise UnsupportedFeatureError("adapters")

    def remove_adapter(self, key: str) -> None:  # noqa: ARG002
        """Release an adapter.

        Raises:
            KeyError: no such adapter.
            ValueError: an open sequence uses it.
        """
        raise UnsupportedFeatureError("adapters")

    def keep_cuts(self, sequence_id: int, cuts: Sequence[int]) -> None:  # noqa: B027
        """Keep the blocks that cuts of a sequence need, also once it needs them no longer.

        Only for layouts with groups: all others keep every block. Blocks that have left already do
        not come back. Each call replaces the cuts of the one before; none: keep no others than what
        the sequence needs, which includes the cut at its last full block.

        Args:
            sequence_id: the sequence.
            cuts: lengths in tokens, as of `baton.kv.cuts`.

        Raises:
            KeyError: no such sequence.
            ValueError: there is no such cut.
        """

    @abstractmethod
    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int = 0
    ) -> None:
        """Copy blocks that were reported ready, each to its place in `out`.

        Any thread may call it while the sequence is open. After an error `out` may hold anything.

        Args:
            sequence_id: the sequence.
            indexes: which blocks of it.
            out: one writable view of `info.object_bytes[group]` per block.
            group: of the layout.

        Raises:
            KeyError: no such sequence.
            ValueError: a block was not reported ready, or a view has another size.
            BlockGoneError: the sequence does not hold one of the blocks: it was preempted and has
                not recomputed it yet, or its page was released, also while it was copied. The
                others may be read without it.
        """

    @abstractmethod
    def write_blocks(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int = 0
    ) -> None:
        """Copy KV into blocks of an admitted sequence's context.

        Any thread may call it between Admitted and `start`, for blocks from
        `Admitted.cached_tokens` on; with groups for those of `Admitted.missing`. The blocks are not
        visible to others before `start` declares them in place, so incorrect bytes may be
        overwritten or left out of `ready_tokens`.

        Args:
            sequence_id: the sequence.
            indexes: which blocks of it.
            data: as many consecutive blocks of `info.object_bytes[group]`; any memory, fastest from
                `scratch`.
            group: of the layout.

        Raises:
            KeyError: no such sequence.
            ValueError: not such a block, not in that period, or `data` has another size. Nothing
                was written.
            BlockGoneError: the engine keeps no page for one of the blocks. Nothing was written.
        """

    def fill_blocks(
        self,
        sequence_id: int,  # noqa: ARG002
        indexes: Sequence[int],  # noqa: ARG002
        fill: Callable[[int, memoryview], None],  # noqa: ARG002
        group: int = 0,  # noqa: ARG002
    ) -> bool:
        """Let KV be written where the engine keeps it, as by `write_blocks`, without another copy.

        Args:
            sequence_id: the sequence.
            indexes: which blocks of it.
            fill: called for each of them in order, with its place in `indexes` and its memory,
                which is valid during the call.
            group: of the layout.

        Returns:
            False if blocks do not lie in this process's memory in one piece; `fill` was not called.

        Raises:
            KeyError: and the other exceptions of `write_blocks`, before `fill` is called.
        """
        return False

    @abstractmethod
    def idle_blocks(self, seconds: float) -> list[CachedBlock]:
        """Return blocks of the prefix cache that no sequence has held for that long.

        Longest idle first; of one chain, a block comes before the one that it continues. With
        groups: blocks of the first one, which leave in all of them.
        """

    @abstractmethod
    def evict_blocks(self, keys: Iterable[bytes] | None = None, idle_seconds: float = 0.0) -> int:
        """Evict blocks that no sequence holds from the prefix cache; return how many.

        With groups: in all of them; counted are those of the first.

        Args:
            keys: keys of the blocks; None: all. Those that are not cached, or are held, are
                skipped.
            idle_seconds: evict only blocks that no sequence has held for that long.
        """

    @abstractmethod
    def warm_up(self) -> None:
        """Run operations that are slow the first time, so that the first request is not."""

    @abstractmethod
    def reset_stats(self) -> None:
        """Reset the counts of computed and cached tokens, and all rates."""

    @abstractmethod
    def close_engine(self) -> None:
        """Release memory and threads. No copy may be in progress; the engine is not used again."""
