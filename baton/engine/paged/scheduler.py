"""Decide which sequences get pages and run; what a step computes of them is planned in `planning`.
Pure: no clock.

Sequences get pages by their turns: one that does not fit holds back those behind it; one that waits
for a block that is being computed or loaded does not. When a decoding sequence finds no page for
its next token, the youngest one of the lowest class is preempted: it releases its pages, waits at
the head of its class and is recomputed. The oldest of the highest class always progresses, and no
sequence is accepted that does not fit alone.

A sequence that would wait for a place or for pages outranks running ones of lower classes: the
youngest of the lowest class goes back to the line, and goes on where it was when its turn comes. It
keeps its pages unless they are needed. Prefills are not outranked: their blocks are being read.

A paused sequence is set aside with its pages, within a share of them. These are released first when
pages run out, in the order in which the sequences were set aside; once it is resumed, the sequence
goes through the line again.
"""

from bisect import insort
from collections.abc import Iterator
from enum import Enum, auto
from itertools import chain

from baton.engine.base import QueueFullError
from baton.engine.paged.group_pages import FoundPages, GroupPages
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits, StepPlan
from baton.engine.paged.planning.planner import StepPlanner, by_youth
from baton.engine.paged.sequence import LiveSequence, SequenceState
from baton.engine.paged.set_aside import SetAside
from baton.engine.paged.waiting_line import WaitingLine


class _Admission(Enum):
    ADMITTED = auto()
    WAITS_FOR_BLOCK = auto()
    NO_ROOM = auto()


class Scheduler:
    """Pages and states of all sequences between `add` and `remove`.

    Owned by the engine, on its thread. Bounded by the pages and by `limits.max_sequences`.
    """

    def __init__(self, pages: GroupPages, limits: SchedulerLimits) -> None:
        self.pages = pages
        self.pool = pages.pools[0]
        """Pages of the first group, which also knows which blocks are computed or loaded."""
        self._limits = limits
        self._waiting = WaitingLine()
        self._admitted: dict[int, LiveSequence] = {}
        """Sequences with pages that are not started."""
        self._running: list[LiveSequence] = []
        """Running sequences, oldest first."""
        self._set_aside = SetAside(int(limits.paused_share * self.pool.total))
        """Paused sequences that keep their pages, and resumed ones of them that are in the line."""
        self._came: tuple[LiveSequence, ...] = ()
        """Sequences admitted since the last plan."""
        self._awaited: tuple[LiveSequence, ...] = ()
        """Sequences for whose start the last plan was left empty."""
        self.planner = StepPlanner(pages, limits, self._allocate_until)
        self._outranked = SetAside()
        """Sequences in the line that keep their pages, and whose places went to higher classes."""
        self.outranked = 0
        """Number of times since start that a running sequence went back to the line for another."""
        self.paused = 0
        """Number of sequences that are left out of steps."""
        self._preempted: list[LiveSequence] = []
        """Sequences preempted since the last plan."""
        self._changed = False
        """Whether a change since the last attempt to admit may let one succeed."""

    @property
    def waiting(self) -> int:
        """Sequences that wait for pages, or were resumed and wait for a place in the batch."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that hold pages, are not set aside and have not ended."""
        return len(self._running) + len(self._admitted)

    @property
    def outranked_now(self) -> int:
        """Sequences that were outranked and have their pages still."""
        return len(self._outranked)

    @property
    def paused_pages(self) -> int:
        """Pages of sequences that are set aside, shared ones counted for each."""
        return self._set_aside.pages

    @property
    def computing(self) -> int:
        """Sequences that a step computes, unless they sit out."""
        return len(self._running)

    @property
    def awaits_start(self) -> bool:
        """Whether the last plan was left empty for a sequence that is not started yet."""
        return any(each.state is SequenceState.ADMITTED for each in self._awaited)

    def has_work(self) -> bool:
        """Return whether a step would do anything."""
        return bool(self._running) or (self._changed and bool(self._waiting))

    def pending_prompt_tokens(self) -> int:
        """Return the prompt tokens that are not computed.

        Those of admitted sequences are not counted, as their KV may be in transfer; those of
        waiting ones all are. `pending_cached_tokens` are those of them that are expected to be
        found.
        """
        known = (*self._waiting, *self._running)  # nothing is computed for sequences without pages
        return sum(max(0, each.prompt_tokens - each.num_computed_tokens) for each in known)

    def pending_cached_tokens(self) -> int:
        """Return the prompt tokens of waiting sequences that are expected to be found."""
        return sum(sequence.expected_cached_tokens for sequence in self._waiting)

    def sequences(self) -> Iterator[LiveSequence]:
        """Yield the sequences that wait or run."""
        return chain(self._waiting, self._admitted.values(), self._running)

    def add(self, sequence: LiveSequence, now: float) -> None:
        """Queue a sequence.

        Raises:
            QueueFullError: max_sequences run or wait.
        """
        # Preempted and resumed sequences also wait, but do not count: they were accepted long ago.
        waiting = sum(not each.started for each in self._waiting)
        if self.running + waiting >= self._limits.max_sequences:
            raise QueueFullError(
                f"{self._limits.max_sequences} sequences are already running or waiting"
            )
        self._waiting.add(sequence, now)
        self._changed = True

    def admit(self, now: float) -> list[LiveSequence]:
        """Give pages to waiting sequences and return them. Preempted ones run again immediately, as
        do resumed ones that have their pages; these are not returned.
        """
        self._came = ()
        if not (self._changed and self._waiting):
            return []
        self._changed = False
        self._waiting.move_overdue(now)
        admitted = []
        gone_on = []
        outranked: list[LiveSequence] = []
        for sequence in self._waiting:
            aside = self._outranked if sequence in self._outranked else self._set_aside
            if sequence in aside and self._make_place(sequence, outranked):
                aside.discard(sequence)
                self._set_running(sequence)
                gone_on.append(sequence)
                continue
            admission = self._try_admit(sequence, outranked, now)
            if admission is _Admission.ADMITTED:
                admitted.append(sequence)
            elif admission is _Admission.NO_ROOM:
                break
        for sequence in (*gone_on, *admitted):
            self._waiting.remove(sequence)
        for sequence in outranked:
            self._waiting.add(sequence, now)
        self._came = tuple(each for each in admitted if not each.started)
        return admitted

    def resume(self, sequence: LiveSequence, now: float) -> None:
        """Resume a paused sequence, once `LiveSequence.paused` is no longer set."""
        if sequence.state is SequenceState.PAUSED:
            self.paused -= 1
            sequence.state = SequenceState.WAITING
            self._waiting.add(sequence, now)
            self._changed = True

    def start(self, sequence: LiveSequence, ready_tokens: int) -> None:
        """Run an admitted sequence whose first tokens' KV is in its pages."""
        del self._admitted[sequence.id]
        sequence.num_computed_tokens = ready_tokens
        sequence.started = True
        self._set_running(sequence)
        self._changed = True  # of its class depends who waits for its blocks

    def plan(self, now: float) -> StepPlan:
        """Choose the tokens to compute next, and allocate pages for them.

        There are none if a sequence was admitted while others of lower classes run: it can start at
        once, unless its KV has to come first, and would have to wait for their step. Steps are not
        left out twice in a row.
        """
        plan = StepPlan(preempted=self._preempted)
        for sequence in [each for each in self._running if each.paused and each.pauses]:
            self._pause(sequence, now)
        held, self._awaited = bool(self._awaited), ()
        if not held:
            came = [one for one in self._came if one.state is SequenceState.ADMITTED]
            if any(_is_lower(each, one) for each in self._running for one in came):
                self._awaited = tuple(came)
        if not self._awaited:
            self.planner.plan(tuple(self._running), plan, now)
        if plan.preempted:
            plan.chunks = [chunk for chunk in plan.chunks if chunk.sequence.running]
        self._preempted = []
        return plan

    def advance(self, chunk: ScheduledChunk) -> None:
        """Record that a planned chunk was computed; blocks that it filled become findable."""
        chunk.sequence.count_computed(chunk.start, chunk.end)
        self.register(chunk.sequence)

    def register(self, sequence: LiveSequence) -> None:
        """Make the sequence's computed full blocks findable."""
        full = sequence.num_computed_tokens // self._limits.block_tokens
        if full > sequence.registered:
            sequence.name_blocks(full, self._limits.block_tokens)
            self.pages.register(sequence, sequence.registered, full)
            sequence.registered = full
            self._changed = True

    def end(self, sequence: LiveSequence, now: float) -> None:
        """End a running sequence; it keeps its pages."""
        self._running.remove(sequence)
        sequence.state = SequenceState.ENDED
        sequence.charge(now)
        self._changed = True

    def remove(self, sequence: LiveSequence, now: float) -> None:
        """Release all resources of a sequence in any state."""
        if sequence.state is SequenceState.WAITING:
            self._waiting.remove(sequence)
        elif sequence.state is SequenceState.ADMITTED:
            del self._admitted[sequence.id]
        elif sequence.state is SequenceState.RUNNING:
            self._running.remove(sequence)
        elif sequence.state is SequenceState.PAUSED:
            self.paused -= 1
        self._set_aside.discard(sequence)
        self._outranked.discard(sequence)
        self._release_pages(sequence, now)
        sequence.state = SequenceState.ENDED

    def _try_admit(
        self, sequence: LiveSequence, outranked: list[LiveSequence], now: float
    ) -> _Admission:
        full = self.running >= self._limits.max_running
        if full and self._next_outranked(sequence) is None:
            return _Admission.NO_ROOM
        if sequence.waits_for is not None and self._busy(sequence, sequence.waits_for):
            return _Admission.WAITS_FOR_BLOCK
        sequence.waits_for = None
        found = self.pages.find(sequence)
        lacking = sequence.keys[found.cached_blocks :]
        # With log probabilities of the prompt nothing is waited for: all is computed here.
        if lacking and not sequence.scores_prompt and self._busy(sequence, lacking[0]):
            sequence.waits_for = lacking[0]
            return _Admission.WAITS_FOR_BLOCK
        blocks = self._limits.blocks(len(sequence.tokens))
        # A preempted sequence leaves a page to each running one; otherwise the next one that needs
        # a page would preempt it again.
        spare = len(self._running) if sequence.started else 0
        if not self._make_room(sequence, found, blocks, spare, outranked, now):
            return _Admission.NO_ROOM
        self._make_place(sequence, outranked)
        sequence.held_since = now
        self.pages.take(sequence, found, blocks)
        self.pool.claim(lacking, sequence.id)
        in_place = 0 if found.missing else found.cached_blocks
        sequence.cached_blocks = sequence.registered = in_place
        sequence.num_computed_tokens = in_place * self._limits.block_tokens
        if sequence.started:
            self._set_running(sequence)
        else:
            sequence.queue_seconds = now - sequence.waiting_since
            sequence.state = SequenceState.ADMITTED
            self._admitted[sequence.id] = sequence
        return _Admission.ADMITTED

    def _busy(self, sequence: LiveSequence, key: bytes) -> bool:
        """Return whether another sequence is about to have the block, and may be waited for."""
        owner = self.pool.claimed_by(key)
        if owner is None:
            return False
        loading = self._admitted.get(owner)
        if loading is not None:
            return sequence.may_wait_for(loading)
        # One of a lower class may be kept out of steps by others.
        return not any(each.id == owner and _is_lower(each, sequence) for each in self._running)

    def _set_running(self, sequence: LiveSequence) -> None:
        sequence.state = SequenceState.RUNNING
        insort(self._running, sequence, key=lambda each: each.order)

    def _allocate_until(self, sequence: LiveSequence, end: int, plan: StepPlan, now: float) -> bool:
        """Allocate pages for tokens before `end`; return False if the sequence was preempted."""
        need = self._limits.blocks(end)
        if len(sequence.pages) >= need:
            return True
        sequence.charge(now)
        return all(
            self._allocate_in(group, sequence, need, plan, now)
            for group in range(len(self.pages.pools))
        )

    def _allocate_in(
        self, group: int, sequence: LiveSequence, need: int, plan: StepPlan, now: float
    ) -> bool:
        pool, table = self.pages.pools[group], sequence.tables[group]
        while len(table) < need:
            page = pool.allocate()
            if page is not None:
                table.append(page)
                plan.fresh.setdefault(group, []).append(page)
                continue
            if self._give_up_aside(now):
                continue
            # A prefill has all its pages from the start, and its blocks are being read: skip it.
            victims = [each for each in self._running if not each.request.prefill_only]
            victim = max(victims, key=by_youth)
            self._preempt(victim, now)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: LiveSequence, now: float) -> None:
        self._running.remove(sequence)
        self._give_up(sequence, now)
        sequence.state = SequenceState.WAITING
        self._waiting.add(sequence, now)

    def _pause(self, sequence: LiveSequence, now: float) -> None:
        self._running.remove(sequence)
        sequence.state = SequenceState.PAUSED
        self.paused += 1
        self._set_aside.add(sequence)
        while self._set_aside.too_many:
            self._give_up(self._set_aside.oldest, now)
        self._changed = True

    def _next_outranked(self, sequence: LiveSequence) -> LiveSequence | None:
        """Return the running sequence that gives its place to this one first; None: none does."""
        lower = [each for each in self._running if _outranks(sequence, each)]
        return max(lower, key=by_youth) if lower else None

    def _make_place(self, sequence: LiveSequence, outranked: list[LiveSequence]) -> bool:
        """Return whether a sequence has a place in the batch; another may lose its own for it."""
        if self.running < self._limits.max_running:
            return True
        victim = self._next_outranked(sequence)
        if victim is not None:
            self._outrank(victim, outranked)
        return victim is not None

    def _outrank(self, sequence: LiveSequence, outranked: list[LiveSequence]) -> None:
        """Take a sequence out of the batch; it keeps its pages, and others no longer wait for the
        blocks that it has not computed.
        """
        self._running.remove(sequence)
        self.pool.unclaim(sequence.keys, sequence.id)
        sequence.state = SequenceState.WAITING
        self._outranked.add(sequence)
        outranked.append(sequence)
        self.outranked += 1
        self._changed = True

    def _make_room(
        self,
        sequence: LiveSequence,
        found: FoundPages,
        blocks: int,
        spare: int,
        outranked: list[LiveSequence],
        now: float,
    ) -> bool:
        """Return whether a context of that many blocks can get the pages that it lacks, and some to
        spare; release the pages of sequences that are set aside, and of running ones of lower
        classes, unless even that would not suffice.
        """
        if self.pages.fits(found, blocks, spare):
            return True
        lower = sum(len(each.pages) for each in self._running if _outranks(sequence, each))
        while not self.pages.fits(found, blocks, spare):
            most = self._set_aside.pages + self._outranked.pages + lower
            if not self.pages.fits(found, blocks, spare - most):
                return False
            if not self._give_up_aside(now):
                victim = self._next_outranked(sequence)
                if victim is None:
                    return False
                lower -= len(victim.pages)
                self._outrank(victim, outranked)
                self._give_up(victim, now)
        return True

    def _give_up_aside(self, now: float) -> bool:
        """Release the pages of one sequence that is set aside; return whether there was one."""
        aside = self._set_aside or self._outranked
        if aside:
            self._give_up(aside.oldest, now)
            return True
        return False

    def _give_up(self, sequence: LiveSequence, now: float) -> None:
        """Release a sequence's pages: it will be recomputed."""
        self._set_aside.discard(sequence)
        self._outranked.discard(sequence)
        self._release_pages(sequence, now)
        sequence.num_computed_tokens = sequence.registered = 0
        self._preempted.append(sequence)

    def _release_pages(self, sequence: LiveSequence, now: float) -> None:
        sequence.charge(now)
        self.pages.release(sequence, now)
        self.pool.unclaim(sequence.keys, sequence.id)
        self._changed = True


def _outranks(sequence: LiveSequence, running: LiveSequence) -> bool:
    return _is_lower(running, sequence) and not running.request.prefill_only


def _is_lower(sequence: LiveSequence, other: LiveSequence) -> bool:
    return sequence.priority_class > other.priority_class
