"""Admission of sequences to vLLM, and the results of its scheduling: the policy that vLLM lacks.

vLLM admits whatever fits, in order. Baton holds each sequence between its admission and its start,
with its pages; held sequences therefore count against `max_running`, and of sequences that need the
same block first only one computes or loads it while the others wait. Pure except for callbacks.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from baton.engine.base import QueueFullError
from baton.engine.paged.sequence import NO_PAGE, LiveSequence, SequenceState
from baton.engine.paged.waiting_line import WaitingLine
from baton.engine.vllm.groups.tables import FoundCut
from baton.engine.vllm.sequences.held_sequence import HeldSequence, StepRecord

_HOLDING = (SequenceState.ADMITTED, SequenceState.RUNNING)
"""States in which a sequence holds pages and has not ended."""


class HeldSequences:
    """Sequences between `add` and `close`, by vLLM's names. Lives on the engine's thread.

    Args:
        max_running: sequences that hold pages and have not ended.
        clock: returns monotonic seconds.
    """

    block_tokens: int
    """Tokens per page, which are known once vLLM has loaded the model."""
    tables_of: Callable[[str], list[list[int]]]
    """Returns the pages of a request, per group."""
    cut_of: Callable[[str], FoundCut | None]
    """Returns the cut for which a request gets pages; None: there are no groups."""
    on_preempted: Callable[[HeldSequence, Sequence[int]], None]
    """Called with the pages of a preempted sequence before another may write them."""
    on_partial_page: Callable[[int, int], None]
    """Called with a group and the page of a prefill's partial block before it is computed: it is
    read whole.
    """

    def __init__(self, max_running: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_running = max_running
        self._clock = clock
        self._by_name: dict[str, HeldSequence] = {}
        self._claims: dict[bytes, HeldSequence] = {}
        """Sequence that computes or loads a block that is not in the prefix cache, by key."""
        self._backlog = WaitingLine()
        """Sequences not yet given to vLLM, which examines all that it has in each step: it gets
        only those that may be admitted.
        """
        self._in_backlog: dict[LiveSequence, HeldSequence] = {}
        self.running = 0
        """Sequences that hold pages and have not ended."""
        self.paused = 0
        """Sequences that are left out of steps; they hold no pages."""
        self.outranked = 0
        """Number of times since start that a sequence lost its place to a higher class."""
        self.to_pause: dict[str, HeldSequence] = {}
        """Sequences to pause as soon as they have received a token."""
        self._told: set[str] = set()
        """Paused sequences whose preemption vLLM has yet to report."""
        self.step = StepRecord()
        self.changed = False
        """Whether a change since the last step may let a waiting sequence continue."""
        self.computed_tokens = 0
        self.cached_tokens = 0

    @property
    def waiting(self) -> int:
        """Return the number of sequences without pages."""
        return sum(1 for _ in self._waiting())

    @property
    def has_backlog(self) -> bool:
        """Whether sequences wait that vLLM has not been given."""
        return bool(self._in_backlog)

    def check_room(self, max_waiting: int) -> None:
        """Check that another sequence may wait.

        Args:
            max_waiting: maximum number of waiting sequences, in addition to the running ones.

        Raises:
            QueueFullError: that many already run or wait, not counting those that were preempted or
                resumed: they were accepted long ago.
        """
        most = self._max_running + max_waiting
        if self.running + sum(not held.sequence.started for held in self._waiting()) >= most:
            raise QueueFullError(f"{most} sequences are already running or waiting")

    def _waiting(self) -> Iterator[HeldSequence]:
        for held in self._by_name.values():
            if held.sequence.state is SequenceState.WAITING:
                yield held

    def sequences(self) -> Iterator[LiveSequence]:
        """Yield the sequences that wait or hold pages, and have not ended."""
        states = (SequenceState.WAITING, *_HOLDING)
        return (each.sequence for each in self._by_name.values() if each.sequence.state in states)

    def pending_prompt_tokens(self) -> int:
        """Return the prompt tokens that are not computed, as of `EngineStats`."""
        pending = 0
        for held in self._by_name.values():
            sequence = held.sequence
            if sequence.state is SequenceState.WAITING:
                pending += sequence.prompt_tokens
            elif sequence.state is SequenceState.RUNNING:
                pending += max(0, sequence.prompt_tokens - sequence.num_computed_tokens)
        return pending

    def pending_cached_tokens(self) -> int:
        """Return the prompt tokens of waiting sequences that are expected to be found."""
        return sum(held.sequence.expected_cached_tokens for held in self._waiting())

    def add(self, held: HeldSequence) -> None:
        """Queue a sequence."""
        self._by_name[held.name] = held
        sequence = held.sequence
        self._backlog.add(sequence, self._clock())
        self._in_backlog[sequence] = held
        self.changed = True

    def pause(self) -> list[HeldSequence]:
        """Return the sequences that are left out of steps from now on, as of `Engine.pause`."""
        left = [each for each in self.to_pause.values() if _pauses(each.sequence)]
        for held in left:
            del self.to_pause[held.name]
            if held.sequence.state is SequenceState.RUNNING:
                self._told.add(held.name)
                self._preempt(held)
            self._set_state(held.sequence, SequenceState.PAUSED)
        return left

    def resume(self, held: HeldSequence) -> bool:
        """Resume a sequence; return whether it was left out of steps."""
        self.to_pause.pop(held.name, None)
        if held.sequence.state is not SequenceState.PAUSED:
            return False
        self._set_state(held.sequence, SequenceState.WAITING)
        self.changed = True
        return True

    @property
    def has_classes(self) -> bool:
        """Whether sequences of several classes are open."""
        return len({each.sequence.priority_class for each in self._by_name.values()}) > 1

    def outrank(self, free_pages: int) -> list[HeldSequence]:
        """Return running sequences to preempt now, the youngest of the lowest class first: those
        whose places or pages others of higher classes wait for.

        Args:
            free_pages: pages that vLLM can give.
        """
        if not self.has_classes:
            return []
        lower = sorted((each for each in self._by_name.values() if _decodes(each)), key=_last)
        places, now = self._max_running - self.running, self._clock()
        left: list[HeldSequence] = []
        for held in sorted(self._waiting(), key=lambda each: each.sequence.turn(now)):
            sequence = held.sequence
            if sequence.waits_for is not None:
                continue
            victims = [each for each in lower if _last(each)[0] > sequence.priority_class]
            needed = -(-len(sequence.tokens) // self.block_tokens)
            most = free_pages + sum(len(each.sequence.pages) for each in victims)
            if needed > most or places + len(victims) < 1:
                break
            while victims and (places < 1 or free_pages < needed):
                victim = victims.pop()
                lower.remove(victim)
                left.append(victim)
                places += 1
                free_pages += len(victim.sequence.pages)
            places -= 1
            free_pages -= needed
        for held in left:
            self._told.add(held.name)
            self._preempt(held)
        self.outranked += len(left)
        return left

    def take_next(self) -> list[HeldSequence]:
        """Return the sequences to give to vLLM now: as many as may be admitted."""
        if not self._in_backlog:
            return []
        self._backlog.move_overdue(self._clock())
        rank = next(iter(self._backlog)).priority_class
        known = sum(
            each.given and each.sequence.waits_for is None and each.sequence.priority_class <= rank
            for each in self._waiting()
        )
        room = self._max_running - known - self.running
        if room <= 0:
            return []
        taken = [self._leave_backlog(each) for each in list(islice(self._backlog, room))]
        for held in taken:
            held.given = True
        return taken

    def get(self, name: str) -> HeldSequence | None:
        """Return the sequence of a request; None once it is removed."""
        return self._by_name.get(name)

    def remove(self, held: HeldSequence) -> None:
        """Remove a sequence, and release those that wait for its blocks."""
        del self._by_name[held.name]
        if held.sequence in self._in_backlog:
            self._leave_backlog(held.sequence)
        self._set_state(held.sequence, SequenceState.ENDED)
        self._unclaim(held)
        self.to_pause.pop(held.name, None)
        self._told.discard(held.name)
        self.step.admitted = [each for each in self.step.admitted if each is not held]
        self.step.scheduled.pop(held.name, None)
        self.changed = True

    def _leave_backlog(self, sequence: LiveSequence) -> HeldSequence:
        self._backlog.remove(sequence)
        return self._in_backlog.pop(sequence)

    def take_step(self) -> StepRecord:
        """Return the record of changes since the last call."""
        record, self.step = self.step, StepRecord()
        return record

    def blocks_ready(self, held: HeldSequence, blocks: int) -> None:
        """Record that a sequence's first blocks are in the prefix cache."""
        keys = held.sequence.keys
        for key in keys[held.sequence.registered : blocks]:
            if self._claims.get(key) is held:
                del self._claims[key]
        held.sequence.registered = blocks
        self.changed = True

    # Called by vLLM's scheduler through the connector.

    def match(self, name: str, local_tokens: int) -> tuple[int | None, bool]:
        """Return the result of `get_num_new_matched_tokens`.

        Args:
            name: of the request.
            local_tokens: leading tokens that vLLM's prefix cache holds, without groups.

        Returns:
            Number of tokens that are being loaded, and whether vLLM waits for them. None: retry at
            the next step.
        """
        held = self._by_name[name]
        sequence = held.sequence
        if sequence.state is SequenceState.WAITING and self.running >= self._max_running:
            return None, False
        if sequence.started:
            return 0, False
        cut = self.cut_of(name)
        found = (local_tokens if cut is None else cut.cached_tokens) // self.block_tokens
        if sequence.waits_for is not None and self._busy(held, sequence.waits_for):
            return None, False
        sequence.waits_for = None
        missing = sequence.keys[found:]
        if missing and not sequence.scores_prompt and self._busy(held, missing[0]):
            sequence.waits_for = missing[0]
            return None, False
        if cut is not None:
            sequence.missing = cut.missing
            sequence.cut_ready_tokens = cut.tokens
            sequence.cached_blocks = sequence.registered = 0 if cut.missing else found
            # Nothing is held for a cut of no tokens, and vLLM does not hold what loads nothing.
            return max(1, cut.tokens), True
        sequence.cached_blocks = sequence.registered = found
        # At least the last token is not in the cache: vLLM omits it from its match.
        return len(sequence.tokens) - local_tokens, True

    def allocated(self, name: str, *, loading: bool) -> None:
        """Record that a request received pages, and whether it is held now."""
        held = self._by_name[name]
        sequence = held.sequence
        now = self._clock()
        self._take_pages(held, now)
        if not loading:
            self._set_state(sequence, SequenceState.RUNNING)
            return
        self._set_state(sequence, SequenceState.ADMITTED)
        sequence.queue_seconds = now - sequence.waiting_since
        self._claims.update(dict.fromkeys(sequence.keys[sequence.cached_blocks :], held))
        self.step.admitted.append(held)

    def scheduled(self, tokens: Mapping[str, int], preempted: Iterable[str]) -> None:
        """Record one step's plan, before any of it is computed.

        Args:
            tokens: number of tokens to compute, by request.
            preempted: requests that lost their pages.
        """
        for name in preempted:
            held = self._by_name.get(name)
            if held is not None and name not in self._told:
                self._preempt(held)
            self._told.discard(name)
        for name, count in tokens.items():
            held = self._by_name.get(name)
            if held is None:
                continue
            sequence = held.sequence
            start = int(held.request.num_computed_tokens)
            end = start + count
            if end > len(sequence.pages) * self.block_tokens:
                self._take_pages(held, self._clock())
            first = sequence.first_computed is None
            sequence.count_forward(start, end)
            if first:
                self.cached_tokens += sequence.cached_tokens
            self.computed_tokens += count
            if count == 1:
                self.step.decoding += 1
            else:
                self.step.chunked_tokens += count
            self.step.scheduled[name] = held

    def _preempt(self, held: HeldSequence) -> None:
        sequence = held.sequence
        sequence.charge(self._clock())
        pages = [page for table in sequence.tables for page in table if page != NO_PAGE]
        sequence.pages, sequence.other_pages = [], []
        sequence.registered = sequence.num_computed_tokens = 0
        self._set_state(sequence, SequenceState.WAITING)
        self.on_preempted(held, pages)
        self._unclaim(held)
        self.changed = True

    def end(self, held: HeldSequence) -> None:
        """Record that a sequence ended; it keeps its pages until it is removed."""
        held.sequence.charge(self._clock())
        self._set_state(held.sequence, SequenceState.ENDED)
        self.changed = True

    def start(self, held: HeldSequence) -> None:
        """Record that an admitted sequence runs from now on."""
        self._set_state(held.sequence, SequenceState.RUNNING)
        held.sequence.started = True
        self.changed = True

    def _set_state(self, sequence: LiveSequence, state: SequenceState) -> None:
        self.running += (state in _HOLDING) - (sequence.state in _HOLDING)
        paused = SequenceState.PAUSED
        self.paused += (state is paused) - (sequence.state is paused)
        sequence.state = state

    def _take_pages(self, held: HeldSequence, now: float) -> None:
        """Record the pages of a sequence, and clear that of a prefill's partial block if it is new.

        Before anything is computed all are: vLLM may have taken back those that it gave before.
        """
        sequence = held.sequence
        known = len(sequence.pages) if sequence.num_computed_tokens else 0
        sequence.charge(now)
        sequence.pages, *sequence.other_pages = self.tables_of(held.name)
        last = len(sequence.keys)
        if not sequence.request.prefill_only or sequence.partial_key is None:
            return
        if known <= last < len(sequence.pages):
            for group, table in enumerate(sequence.tables):
                if table[last] != NO_PAGE:
                    self.on_partial_page(group, table[last])

    def _busy(self, held: HeldSequence, key: bytes) -> bool:
        """Return whether another sequence is about to have the block, and may be waited for."""
        owner = self._claims.get(key)
        if owner is None or owner is held:
            return False
        return held.sequence.may_wait_for(owner.sequence)

    def _unclaim(self, held: HeldSequence) -> None:
        for key in held.sequence.keys:
            if self._claims.get(key) is held:
                del self._claims[key]


def _decodes(held: HeldSequence) -> bool:
    return held.sequence.state is SequenceState.RUNNING and _pauses(held.sequence)


def _last(held: HeldSequence) -> tuple[int, int]:
    return held.sequence.priority_class, held.sequence.order


def _pauses(sequence: LiveSequence) -> bool:
    running = sequence.state in (SequenceState.RUNNING, SequenceState.WAITING)
    return running and sequence.sampled_tokens > 0 and not sequence.request.prefill_only
