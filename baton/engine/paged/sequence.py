"""The state of one open sequence."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from baton.engine.base import PICTURES, EngineInfo, SequenceRequest, UnsupportedFeatureError
from baton.engine.events import EndReason
from baton.engine.work_order import BY_ARRIVAL, WorkOrder
from baton.kv.cuts import cut_rules
from baton.kv.keys import block_extra, check_runs, full_block_key, prompt_keys, token_bytes
from baton.structured.grammars import Grammars
from baton.structured.masks import PendingMask
from baton.structured.state import GrammarState

NO_PAGE = -1
"""Entry of a block that has no page in a group, because nothing of the sequence needs it there."""
OVERDUE_SECONDS = 60.0
"""Waiting time from which a sequence precedes those of its class that waited less, whatever their
orders."""


class TurnGroup(IntEnum):
    """Group of sequences of one class; groups are compared before the orders of their sequences."""

    BEGUN = auto()
    """Sequences that were partly computed or lost their pages: once begun, they are read fully."""
    RESUMED = auto()
    """Streams that another engine began: their clients have received part of them."""
    OVERDUE = auto()
    ORDERED = auto()


Turn = tuple[int, TurnGroup, WorkOrder, int]
"""A class, a group, the order within it, and the rank by arrival; the lowest goes first, and no two
are equal."""


class SequenceState(Enum):
    WAITING = auto()
    """Waiting for pages or for a place: new, preempted, resumed, or outranked."""
    ADMITTED = auto()
    """Has pages, into which another thread may be writing KV."""
    RUNNING = auto()
    PAUSED = auto()
    """Left out of steps, with or without pages."""
    ENDED = auto()
    """Ended; keeps its pages until it is closed."""


@dataclass(slots=True, eq=False)
class LiveSequence:
    """One open sequence, owned by the engine; the scheduler changes its state and its pages."""

    request: SequenceRequest
    order: int
    """Rank by order of arrival."""
    tokens: list[int]
    """Prompt and output tokens."""
    context_tokens: int
    """Tokens known when it was added, whose blocks `write_blocks` may write."""
    length_limit: int
    """Number of prompt plus output tokens at which it ends for length."""
    stops: frozenset[int]
    """Tokens that end the output, all within the vocabulary."""
    grammar_ends: frozenset[int]
    """Tokens that end an output which its grammar lets end there; empty without a grammar."""
    grammar: GrammarState | None
    """State of the output in its grammar."""
    keys: list[bytes]
    """Keys of the full blocks known so far, in chain order."""
    partial_key: bytes | None
    """Key of the context's last block if that is not full."""
    waiting_since: float
    state: SequenceState = SequenceState.WAITING
    started: bool = False
    """Whether `start` was called: once preempted it continues without its caller."""
    paused: bool = False
    """Whether `pause` was called: it gets no tokens except the first one here."""
    pages: list[int] = field(default_factory=list)
    """Pages; replaced, never emptied, on release: another thread may be reading the list. With
    groups: those of the first one.
    """
    other_pages: list[list[int]] = field(default_factory=list)
    """Pages of the other groups, with as many entries each, or none."""
    page_weights: tuple[float, ...] = ()
    """Share of each group in a block's bytes; empty: there is one group."""
    behind: list[int] = field(default_factory=list)
    """Per group, the first block that was not given up; earlier ones have pages only if kept."""
    kept: set[tuple[int, int]] = field(default_factory=set)
    """Groups and blocks that are kept although the sequence may not need them."""
    missing: tuple[tuple[int, ...], ...] = ()
    """As of `Admitted.missing`."""
    cut_ready_tokens: int | None = None
    """Tokens with which it must be started; None: its layout has no groups."""
    cached_blocks: int = 0
    """Leading blocks found in the prefix cache at the last admission."""
    num_computed_tokens: int = 0
    """Leading tokens whose KV is in the pages."""
    registered: int = 0
    """Leading blocks that were offered to the prefix cache."""
    reported: int = 0
    """Leading blocks that were reported ready."""
    partial_reported: bool = False
    waits_for: bytes | None = None
    """Key of the block that another sequence was busy with at the last attempt to admit."""
    mask: PendingMask | None = None
    """Mask of its next token, from the request until a token is sampled with it."""
    sits_out: bool = False
    """Whether it is left out of the next step because its mask would not be ready."""
    forward_tokens: int = 0
    """Positions that went through a forward pass; recomputed ones count again."""
    first_computed: int | None = None
    """Lowest position ever computed."""
    scored_tokens: int = 1
    """Leading prompt tokens that need no log probability any more; the first one has none."""
    sampled_tokens: int = 0
    """Output tokens sampled here, over all choices."""
    queue_seconds: float = 0.0
    page_seconds: float = 0.0
    held_since: float = 0.0

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def running(self) -> bool:
        return self.state is SequenceState.RUNNING

    @property
    def priority_class(self) -> int:
        """Return the rank of its class; the lowest is first."""
        return self.request.order.priority_class

    @property
    def tables(self) -> list[list[int]]:
        """Return the pages of each group."""
        return [self.pages, *self.other_pages]

    @property
    def pauses(self) -> bool:
        """Whether it must be left out of steps now: it is paused, and no other may wait for its
        blocks, since the whole context with which it arrived was computed.
        """
        return (
            self.paused
            and self.state is SequenceState.RUNNING
            and self.sampled_tokens > 0
            and len(self.tokens) - self.num_computed_tokens == 1
        )

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def expected_cached_tokens(self) -> int:
        """Return the prompt tokens that are expected to be found once it is admitted; one is
        computed.

        0 for a preempted sequence: it is recomputed.
        """
        if self.started:
            return 0
        return min(self.request.expected_cached_tokens, self.prompt_tokens - 1)

    @property
    def scores_prompt(self) -> bool:
        """Whether log probabilities of its prompt remain to be reported."""
        return self.request.prompt_logprobs is not None and self.scored_tokens < self.prompt_tokens

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def forbidden_tokens(self) -> frozenset[int]:
        """Return the tokens that may not come next, because the output is shorter than min_tokens.

        With a grammar and ignore_eos, these include tokens that end it, unless no other is allowed.
        """
        sampling = self.request.sampling
        if self.output_tokens < sampling.min_tokens:
            return self.stops | self.grammar_ends
        return self.grammar_ends if sampling.ignore_eos else frozenset()

    @property
    def cached_tokens(self) -> int:
        """Return the number of prompt tokens never computed here: their KV was found."""
        if self.first_computed is None:
            return 0
        return min(self.first_computed, self.prompt_tokens)

    def turn(self, now: float) -> Turn:
        """Return the sequence's turn, which is compared with those of others.

        Args:
            now: seconds on the engine's clock.
        """
        rank = self.priority_class
        preempted = self.started and self.state is SequenceState.WAITING
        if self.forward_tokens or preempted:
            return rank, TurnGroup.BEGUN, BY_ARRIVAL, self.order
        if self.request.output:
            return rank, TurnGroup.RESUMED, BY_ARRIVAL, self.order
        if now - self.waiting_since >= OVERDUE_SECONDS:
            return rank, TurnGroup.OVERDUE, BY_ARRIVAL, self.order
        return rank, TurnGroup.ORDERED, self.request.order, self.order

    def count_computed(self, start: int, end: int) -> None:
        """Record that KV of positions from `start` to `end` was computed."""
        self.count_forward(start, end)
        self.num_computed_tokens = max(self.num_computed_tokens, end)

    def count_forward(self, start: int, end: int) -> None:
        """Count positions from `start` to `end` as computed in a forward pass."""
        self.forward_tokens += end - start
        if self.first_computed is None or start < self.first_computed:
            self.first_computed = start

    def check_startable(self, ready_tokens: int, block_tokens: int) -> None:
        """Check that the sequence may be started with KV in place for the given leading tokens.

        Raises:
            ValueError: it is not admitted, or the tokens are fewer than the prefix cache had, or
                more than the context, or not 0 with log probabilities of the prompt, or not those
                of its cut.
        """
        if self.state is not SequenceState.ADMITTED:
            raise ValueError(f"sequence {self.id} is {self.state.name.lower()}")
        if ready_tokens and self.scores_prompt:
            raise ValueError(
                f"ready_tokens is {ready_tokens}, and with prompt_logprobs all is computed here"
            )
        if self.cut_ready_tokens not in (None, ready_tokens):
            raise ValueError(f"ready_tokens is {ready_tokens}, not {self.cut_ready_tokens}")
        cached = self.cached_blocks * block_tokens
        if not cached <= ready_tokens <= self.context_tokens:
            raise ValueError(
                f"ready_tokens is {ready_tokens}, not {cached} to {self.context_tokens}"
            )

    def may_wait_for(self, owner: "LiveSequence") -> bool:
        """Return whether it may wait for a block that another sequence computes or loads.

        A decoding sequence that is not started may itself wait for the very prefill that asks.
        """
        loads = owner.state is SequenceState.ADMITTED and not owner.request.prefill_only
        return not (self.request.prefill_only and loads)

    def charge(self, now: float) -> None:
        """Add the time for which the current pages were held; call before their number changes."""
        pages: float = len(self.pages)
        if self.page_weights:
            weighted = zip(self.page_weights, self.tables, strict=False)  # no tables: no pages
            pages = sum(weight * (len(table) - table.count(NO_PAGE)) for weight, table in weighted)
        self.page_seconds += pages * (now - self.held_since)
        self.held_since = now

    def set_output(self, output: Sequence[int], vocab_tokens: int) -> None:
        """Set the whole output so far; an empty one is the request's own.

        Raises:
            ValueError: it does not belong to this request, or has already ended; nothing was
                changed.
        """
        known = self.output_tokens
        if not output:
            return
        if tuple(output[:known]) != tuple(self.request.output):
            raise ValueError("output does not begin with the request's own")
        if self.request.prefill_only and len(output) > known:
            raise ValueError("with prefill_only there is no output but the request's own")
        if self.prompt_tokens + len(output) >= self.length_limit:
            raise ValueError(f"an output of {len(output)} tokens has ended already")
        check_tokens(output, vocab_tokens)
        self.tokens.extend(output[known:])

    def end_reason(self, token: int, position: int) -> EndReason | None:
        """Return why the output ends with a token sampled for a position; None if it continues."""
        if token in self.grammar_ends:
            return EndReason.STOP
        # Such a token before min_tokens was sampled only because no other was allowed.
        if token in self.stops and position >= self.request.sampling.min_tokens:
            return EndReason.STOP
        if self.prompt_tokens + position + 1 >= self.length_limit:
            return EndReason.LENGTH
        return None

    def name_blocks(self, count: int, block_tokens: int) -> None:
        """Extend `keys` to `count` blocks, whose tokens are known."""
        while len(self.keys) < count:
            at = len(self.keys) * block_tokens
            end = at + block_tokens
            previous = self.keys[-1] if self.keys else self.request.root
            extra = block_extra(self.request.runs, at, end)
            block = token_bytes(self.tokens[at:end])
            self.keys.append(full_block_key(previous, block, extra))


def open_sequence(
    request: SequenceRequest,
    order: int,
    now: float,
    info: EngineInfo,
    grammars: Grammars | None = None,
    adapters: Collection[str] = (),
) -> LiveSequence:
    """Check a request and return its state.

    Args:
        request: the worker's request.
        order: rank by arrival.
        now: seconds on the engine's clock.
        info: of the engine that runs it.
        grammars: of that engine; None: it lacks the feature.
        adapters: keys of the adapters that were added to it.

    Raises:
        GrammarError, GrammarsBusyError: as of `Engine.add`.
        UnsupportedFeatureError: it has a grammar, an adapter or pictures, which the engine does not
            support.
        ValueError: a field is out of range; the text names it and its limit.
    """
    max_tokens, vocab_tokens = info.context_tokens, info.vocab_tokens
    _check_cut(request, info)
    if request.adapter and not info.adapters and info.adapter_limits is None:
        raise UnsupportedFeatureError("adapters")
    known = (*info.adapters, *adapters)
    if request.adapter and request.adapter not in known:
        raise ValueError(
            f"adapter {request.adapter!r} does not exist: this engine has {', '.join(known)}"
        )
    sampling = request.sampling
    if sampling.grammar is not None and grammars is None:
        raise UnsupportedFeatureError("grammar")
    if request.prompt_logprobs is not None and "prompt_logprobs" not in info.features:
        raise UnsupportedFeatureError("prompt_logprobs")
    if request.runs and PICTURES not in info.features:
        raise UnsupportedFeatureError(PICTURES)
    check_runs(request.runs, len(request.prompt))
    tokens = [*request.prompt, *request.output]
    if not request.prompt:
        raise ValueError("the prompt is empty")
    if len(tokens) >= max_tokens:
        raise ValueError(
            f"the prompt and output so far have {len(tokens)} tokens and this engine holds "
            f"{max_tokens}, of which one must be left to generate"
        )
    if sampling.max_tokens is not None and sampling.max_tokens <= len(request.output):
        raise ValueError(
            f"max_tokens is {sampling.max_tokens}; the output already has {len(request.output)}"
        )
    if not request.choices or (len(request.choices) > 1 and not request.prefill_only):
        raise ValueError("one choice is required; more are supported only with prefill_only")
    check_tokens(tokens, vocab_tokens)
    check_tokens(list(sampling.logit_bias), vocab_tokens)
    stops = set(sampling.stop_token_ids)
    if not sampling.ignore_eos:
        stops.update(info.eos_token_ids)
    grammar, grammar_ends = None, frozenset[int]()
    if sampling.grammar is not None and grammars is not None:
        grammar = grammars.begin(sampling.grammar)
        grammar_ends = frozenset(info.eos_token_ids)
    named = prompt_keys(request.root, tokens, info.layout.block_tokens, request.runs)
    return LiveSequence(
        request=request,
        order=order,
        tokens=tokens,
        context_tokens=len(tokens),
        length_limit=min(len(request.prompt) + (sampling.max_tokens or max_tokens), max_tokens),
        stops=frozenset(token for token in stops if 0 <= token < vocab_tokens),
        grammar_ends=grammar_ends,
        grammar=grammar,
        keys=list(named.full),
        partial_key=named.partial,
        waiting_since=now,
    )


def _check_cut(request: SequenceRequest, info: EngineInfo) -> None:
    """Raise ValueError if the requested cut is none of the context's."""
    cut, context = request.cut_tokens, len(request.prompt) + len(request.output)
    if not cut:
        return
    if not info.layout.groups:
        raise ValueError("cut_tokens is for layouts with groups")
    if request.prompt_logprobs is not None:
        raise ValueError("cut_tokens must be 0 with prompt_logprobs: all is computed here")
    ends = cut % info.layout.block_tokens == 0 or cut == context - 1
    if not 0 <= cut < context or not ends or cut_rules(info.layout).floor(cut) != cut:
        raise ValueError(f"cut_tokens is {cut}, which is no cut of {context} tokens")


def check_tokens(tokens: Sequence[int], vocab_tokens: int) -> None:
    """Check that token ids are in the vocabulary.

    Raises:
        ValueError: one is not.
    """
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_tokens):
        raise ValueError(f"a token id is not between 0 and {vocab_tokens - 1}")
